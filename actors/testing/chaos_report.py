"""What ``exeunt chaos`` found, as data: its JSON document, and what the pytest fixture returns."""

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """A round in which a promise was broken."""

    plan: str
    """Which processes were struck, how and when."""
    words: str
    replay: str
    """The command that performs this plan again."""


class UnsafeTool(msgspec.Struct, frozen=True):
    """A tool of the user's that cannot be repeated, so a kill may leave its call in doubt."""

    tool: str
    in_doubt: int
    """Rounds in which that happened."""
    words: str


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """One session; ``ok`` is true when every promise was kept in every round."""

    ok: bool
    seed: int
    kills: int
    """Rounds with a plan; ``struck`` counts those of which a strike met its victims."""
    struck: int
    boundaries: int
    """Trace lines and journal sizes of the undisturbed tree, of which the plans choose."""
    runs: int
    status: str
    """How the tree ends undisturbed."""
    repeatable: bool
    """False: two undisturbed runs differed, so that answers and files were not compared."""
    seconds: float
    failures: tuple[Failure, ...] = ()
    unsafe_tools: tuple[UnsafeTool, ...] = ()
    short_budgets: tuple[str, ...] = ()
    """Agents whose budget a kill used up: what was possibly spent counts."""

    def __str__(self) -> str:
        """What went wrong, for a failed assertion."""
        told = [f"{one.words}\n  plan {one.plan}\n  {one.replay}" for one in self.failures]
        return "\n".join([f"{len(self.failures)} of {self.kills} rounds failed", *told])
