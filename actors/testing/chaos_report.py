"""What ``exeunt chaos`` found, as data: its JSON document, and what the pytest fixture returns."""

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """A round in which a promise was broken."""

    plan: str
    """Which processes were struck, how and when."""
    words: str
    replay: str
    """The command that performs this plan again."""
    tools: tuple[str, ...] = ()
    """The tools that may be behind it; none when it is no tool's doing."""


class UnsafeTool(msgspec.Struct, frozen=True):
    """A tool that cannot be repeated: a kill leaves its call in doubt, or makes it happen twice."""

    tool: str
    in_doubt: int
    """Rounds in which a call was left in doubt."""
    words: str
    broken: int = 0
    """Rounds in which files or answer came out otherwise, because a call was run again."""
    replay: str = ""
    """The command that performs one of these rounds again."""


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """One session; ``ok`` is true when every promise was kept in every round.

    It is false as well when a plan that was asked for struck nothing, or none of those drawn did,
    or when somebody interrupted it.
    """

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
    """False: two undisturbed runs differed; ``varying`` says in what."""
    seconds: float
    interrupted: bool = False
    """It was cut short by a signal, and tells of the rounds until then."""
    varying: tuple[str, ...] = ()
    """What was not the same twice even undisturbed, and so compared in no round, in words."""
    untried: tuple[str, ...] = ()
    """Tools that may be run again after a kill, and were not in any of these rounds."""
    lifted: tuple[str, ...] = ()
    """Limits of time of the configuration, which held undisturbed and in no round that struck."""
    missed: tuple[str, ...] = ()
    """Rounds in which nothing was struck, in words that say why; they have tried nothing."""
    failures: tuple[Failure, ...] = ()
    unsafe_tools: tuple[UnsafeTool, ...] = ()
    short_budgets: tuple[str, ...] = ()
    """Agents whose budget a kill used up: what was possibly spent counts."""

    def __str__(self) -> str:
        """What went wrong, for a failed assertion."""
        told = [f"{one.words}\n  plan {one.plan}\n  {one.replay}" for one in self.failures]
        return "\n".join(
            [f"{len(self.failures)} of {self.kills} rounds failed", *told, *self.missed]
        )
