"""Sees the children of one message to their ends, as many at once as there may be."""

from collections.abc import Sequence

import trio

from actors.child_report import ChildReport
from actors.children import Children
from actors.decision import Run
from actors.events import ChildWaits, Finished, Started
from actors.messages import ResultKind
from actors.outcome import Status
from actors.record import Record
from actors.reserve import no_child, reserve_nusd


class FanOut:
    """Performs the calls of one run that have runs of their own behind them."""

    def __init__(self, record: Record, children: Children) -> None:
        self._record = record
        self._children = children
        self._slots = trio.CapacityLimiter(record.state.limits.children_at_once)

    async def perform(self, runs: Sequence[Run]) -> None:
        """Start children in the order of their calls, and return when all have ended."""
        new = [run.call.ref for run in runs if not run.call.attempts]
        async with trio.open_nursery() as nursery:
            for run in runs:
                ref = run.call.ref
                await self._slots.acquire_on_behalf_of(ref)
                # Asked again at the last moment: by now others may have failed alike, or have
                # spent what there was.
                if ref not in new or self._start(run, len(new) - new.index(ref)):
                    nursery.start_soon(self._child, run)
                else:
                    self._slots.release_on_behalf_of(ref)

    def _start(self, run: Run, waiting: int) -> bool:
        """Record that a child starts and what it may spend, or why it does not start."""
        state, tool, ref = self._record.state, run.tool, run.call.ref
        reserve = reserve_nusd(state, tool, waiting)
        words = no_child(state, tool)
        if words is None and reserve == 0:
            words = "not run: what the budget has left is too little for so many children"
        if words:
            refused = Finished(ref=ref, outcome=ResultKind.ERROR, content=words)
            self._record.write(refused)
            return False
        started = Started(
            ref=ref,
            name=tool.name,
            nature=tool.nature,
            key="",  # There is nobody to hand it to: the child's own writes have keys of their own.
            attempt=run.attempt,
            digest=run.digest,
            agent=tool.agent,
            reserve_nusd=reserve or 0,
        )
        self._record.write(started)
        return True

    async def _child(self, run: Run) -> None:
        """See the run behind a call to its end; the parent reads only its report."""
        call, question = run.call, str(run.arguments.values["question"])
        try:
            # What is reserved is on the disk first; for children that start together, in one go.
            await self._record.journal.sync()
            report = await self._children.run(
                call.ref, run.tool.agent, question, call.reserve_nusd or None
            )
            # On record before the place is free, so that the next one knows how this one ended.
            if report.waits:
                self._record.write(ChildWaits(ref=call.ref, interruption=report.waits))
            else:
                self._record.write(_finished(call.ref, report))
        finally:
            self._slots.release_on_behalf_of(call.ref)
        await self._record.journal.sync()


def _finished(ref: str, report: ChildReport) -> Finished:
    done = report.status == Status.COMPLETED
    return Finished(
        ref=ref,
        outcome=ResultKind.OK if done else ResultKind.ERROR,
        content=report.words,
        child_nusd=report.spent_nusd,
        child_status=report.status,
    )
