"""Makes the golden journals: ``python -P tests/golden_runs.py`` writes those that are missing.

A golden journal is what some version wrote, so one that is there is never written again; a new
schema gets new files beside the old ones.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

GOLDEN = Path(__file__).parent / "golden"
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from story import Story, call  # noqa: E402

from actors.events import (  # noqa: E402
    SCHEMA,
    Abandoned,
    AnyEvent,
    Asked,
    ChildSettled,
    ChildWaits,
    ContextFitted,
    Finished,
    Head,
    Opened,
    Started,
    UserMessage,
    encoder,
)
from actors.frame import SYNCED, encode  # noqa: E402
from actors.messages import Nature, ResultKind  # noqa: E402
from actors.money import Prices, Usage  # noqa: E402
from actors.outcome import Approval, Cancelled, Outcome, Status  # noqa: E402
from actors.spec import Limits  # noqa: E402
from actors.state import State, fold  # noqa: E402
from actors.window import Marks  # noqa: E402


def everything() -> list[AnyEvent]:
    """A run in which everything happens that can."""
    limits = Limits(max_turns=9, max_budget_nusd=500_000_000, deadline_seconds=60.0)
    story = Story(limits, Prices(2_000_000, 200_000, 12_000_000))
    story.ask(cap_nusd=12_200_000)
    story.fail(kind="broken", words="cut", maybe_billed=True, cap_nusd=12_200_000, retry_at=1003.5)
    story.ask(cap_nusd=12_200_000)
    story.reply(
        call("look", '{"at": 1}', "a"),
        call("write", '{"to": 2}', ""),
        call("delete", '{"what": 3}', "a"),
        call("gone", "{", "b"),
        text="Let me see. 🦆 \x00",
        usage=Usage(120, 40, 64),
        cost_nusd=604_800,
    )
    story.run("1.0", Nature.READ_ONLY, content="seen")
    story.finish("1.3", "error: there is no tool 'gone'. Available: look", ResultKind.ERROR)
    story.start("1.1", Nature.WRITE)
    story.open("restart")
    story.finish("1.1", "in doubt", ResultKind.IN_DOUBT)
    story.ask_person("1.2", b"0123456789abcdef")
    waits = Approval("r1", "1.2", "delete", {"what": 3}, ("r1",))
    story.end(Outcome(Status.INTERRUPTED, waits))
    story.open("verdict")
    story.verdict("1.2", "approve", b"0123456789abcdef", '{"what": 4}', "go on")
    story.open("resume")
    story.run("1.2", content="deleted 4")
    story.ask(cap_nusd=12_500_000)
    story.reply(call("look"), call("look", '{"at": 9}'), usage=Usage(200, 20, estimated=True))
    story.start("2.0", Nature.READ_ONLY)
    story.tell(Abandoned(ref="2.0", words="error: look did not end within 1 s and was stopped"))
    story.open("resume")
    story.finish("2.0", "error: look did not end within 1 s and was stopped", ResultKind.ERROR)
    story.start("2.1", Nature.READ_ONLY)
    story.stop("lunch")
    story.finish("2.1", "stopped before it ended: cancelled, lunch", ResultKind.CANCELLED)
    story.end(Outcome(Status.INTERRUPTED, Cancelled("lunch", "user")))
    story.open("resume")
    story.ask(cap_nusd=12_900_000)
    story.reply(text="All is done.", usage=Usage(300, 5), cost_nusd=660_000)
    story.end(Outcome(Status.COMPLETED, output="All is done."))
    return story.events


def killed() -> list[AnyEvent]:
    """A run that a crash cut off, with a call and a request that nobody heard of again."""
    story = Story()
    story.ask(cap_nusd=5)
    story.reply(call("look"), call("write"))
    story.run("1.0", Nature.READ_ONLY)
    story.start("1.1")
    return story.events


def family() -> list[AnyEvent]:
    """A run with children: one that answers, one that waits for a person, one that is stopped."""
    story = Story(Limits(max_budget_nusd=500_000_000), Prices(2_000_000, 200_000, 12_000_000))
    story.reply(call("research", '{"question": "a"}'), call("research", '{"question": "b"}'))
    for ref in ("1.0", "1.1"):
        story.tell(
            Started(
                ref=ref,
                name="research",
                nature=Nature.CHILD,
                key="k",
                attempt=1,
                digest=ref.encode(),
                agent="researcher",
                reserve_nusd=50_000_000,
            )
        )
    story.tell(
        Finished(
            ref="1.0",
            outcome=ResultKind.OK,
            content="completed: it was worker 7",
            child_nusd=2_100_000,
            child_status="completed",
        )
    )
    waits = Approval("r1.1.1", "2.0", "delete", {"what": 3}, ("r1", "r1.1.1"))
    story.tell(ChildWaits(ref="1.1", interruption=waits))
    story.end(Outcome(Status.INTERRUPTED, waits))
    story.open("resume")
    story.tell(UserMessage(text="Hurry up.", who="boss"))
    story.stop("lunch")
    story.finish("1.1", "stopped while it ran: cancelled, lunch", ResultKind.CANCELLED)
    story.tell(ChildSettled(ref="1.1", child_nusd=900_000))
    story.end(Outcome(Status.INTERRUPTED, Cancelled("lunch", "user")))
    return story.events


def long() -> list[AnyEvent]:
    """A run that outgrows its window: fitted twice, and refused once as too long in between."""
    story = Story()

    def ask(raw: int, rounds: int) -> None:
        turn = story.state.head.turns + 1
        story.tell(
            Asked(
                turn=turn,
                input_estimate=raw * 13 // 10,
                max_output=1000,
                cap_nusd=0,
                raw=raw,
                rounds=rounds,
            )
        )

    def fitted(marks: Marks, before: int, after: int, why: str = "budget") -> None:
        old = story.state.head.marks
        cleared, folded = marks.cleared_upto - old.cleared_upto, marks.folded_upto - old.folded_upto
        story.tell(
            ContextFitted(
                marks=marks, before=before, after=after, cleared=cleared, folded=folded, why=why
            )
        )

    for number in range(6):
        ask(1000 + 2000 * number, number)
        story.reply(call("look", f'{{"at": {number}}}'), usage=Usage(1200 + 2500 * number, 40))
        story.run(f"{number + 1}.0", Nature.READ_ONLY, content=f"{number} " * 50)
    fitted(Marks(cleared_upto=4), 16_000, 6_200)
    ask(5000, 6)
    story.fail(kind="overflow", words="too long", lowered_budget=4100)
    fitted(Marks(5, 4, 5, 900, 4100), 6_200, 2_900)
    ask(2300, 6)
    story.reply(text="That was long.", usage=Usage(2_800, 12, 1_024))
    story.end(Outcome(Status.COMPLETED, output="That was long."))
    return story.events


RUNS = {"everything": everything, "killed": killed, "family": family, "long": long}


def journal_bytes(events: list[AnyEvent]) -> bytes:
    """The events as frames; each says that what came before was synced."""
    data, crc, epoch, state = b"", 0, 0, State()
    for seq, event in enumerate(events, 1):
        state.apply(event)
        if isinstance(event, Opened):
            epoch = event.epoch
        if hasattr(event, "head"):
            event = msgspec.structs.replace(event, head=state.head.copy())
        flags = SYNCED if seq > 1 else 0
        chunk, crc = encode(encoder.encode(event), seq=seq, epoch=epoch, flags=flags, previous=crc)
        data += chunk
    return data


def told(state: State) -> dict[str, Any]:
    """What must come out of a journal for ever: fields may be added to it, none may change."""
    return msgspec.to_builtins(
        {
            "run_id": state.run_id,
            "root": state.root,
            "agent": state.agent,
            "epoch": state.epoch,
            "prompts": state.prompts,
            "limits": state.limits,
            "prices": state.prices,
            "outcome": state.outcome,
            "head": {name: getattr(state.head, name) for name in Head.__struct_fields__},
            "pending": [one.ref for one in state.pending],
            "turns": [
                {
                    "text": turn.message.text,
                    "finish": turn.finish,
                    "calls": [
                        {
                            "ref": one.ref,
                            "id": one.written.id,
                            "name": one.written.name,
                            "arguments": one.arguments,
                            "attempts": one.attempts,
                            "nature": one.nature,
                            "outcome": one.result and one.result.outcome,
                            "content": one.result and one.result.content,
                        }
                        for one in turn.calls
                    ],
                }
                for turn in state.turns
            ],
        }
    )


def main() -> None:
    """Write the golden journals of this schema that are not there."""
    GOLDEN.mkdir(exist_ok=True)
    for name, make in RUNS.items():
        path = GOLDEN / f"{SCHEMA}-{name}.x1"
        if not path.exists():
            events = make()
            path.write_bytes(journal_bytes(events))
            said = msgspec.json.encode(told(fold(events)))
            path.with_suffix(".json").write_bytes(msgspec.json.format(said) + b"\n")
            print(path)


if __name__ == "__main__":
    main()
