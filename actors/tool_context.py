"""What a running tool is given: who calls it, its key, its workspace, and a way to say how far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from actors.notes import Notes
from actors.process import MAX_OUTPUT_BYTES, ProcessResult, run_process, tool_environment
from actors.text import excerpt
from actors.tool_errors import PermanentError
from actors.workspace import Workspace

MAX_LABEL = 200


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """One call of one tool; a parameter annotated with it is not part of the tool's schema."""

    run_id: str
    call: str
    """The call's name in its run, as ``turn.index``."""
    key: str
    """The idempotency key: the same for every attempt at this call, over restarts."""
    report: Callable[[str], None]
    """Takes progress labels; called from whatever thread the tool runs in."""
    attempt: int = 1
    """Above 1 when an earlier attempt was cut off."""
    workspace: Workspace | None = None
    notes: Notes | None = None
    environment: Sequence[str] = ()
    """Names of further environment variables that subprocesses may see."""
    pass_fds: Sequence[int] = ()
    """Descriptors that subprocesses inherit: the effects lock, held while one of them lives."""
    marker: str = ""
    """The value of ``EXEUNT_ACTOR`` in subprocesses, by which the sweeper knows them."""

    def progress(self, label: str) -> None:
        """Say how far the call is, in one line; what is over ``MAX_LABEL`` characters is cut."""
        self.report(excerpt(label, MAX_LABEL))

    def require_workspace(self) -> Workspace:
        """Give the workspace; raises PermanentError in a run that has none."""
        if self.workspace is None:
            raise PermanentError("This run has no workspace, so there are no files to work on.")
        return self.workspace

    def require_notes(self) -> Notes:
        """Give the run's notes; raises PermanentError in a run that has none."""
        if self.notes is None:
            raise PermanentError("This run keeps no notes.")
        return self.notes

    async def run_process(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        input: bytes | str | None = None,  # noqa: A002  # the word of subprocess.run
        cwd: Path | str | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> ProcessResult:
        """Run a program that dies with its group; ``cwd`` is the workspace unless given.

        Raises:
            ToolError: it cannot be started, or did not end within ``timeout_s``.
            PermanentError: the program or the folder may not be used by this user.
        """
        if cwd is None and self.workspace is not None:
            cwd = self.workspace.root
        return await run_process(
            argv,
            environment=tool_environment(self.environment, self.marker),
            timeout_s=timeout_s,
            input=input,
            cwd=cwd,
            max_output_bytes=max_output_bytes,
            pass_fds=self.pass_fds,
        )
