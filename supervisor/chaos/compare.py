"""How a tree that was struck differs from the same tree undisturbed, and whose work that is.

A tool whose call was run again, or that left something running behind its answer, is blamed. Where
several may be the cause they are all named: a file does not tell who wrote it.
"""

from collections.abc import Collection, Mapping, Sequence

from actors.messages import Nature
from actors.testing.evidence import Broken
from supervisor.chaos.ended import Ended, Ran, tool_names
from supervisor.chaos.plan import BEHIND, REPEAT, Lure

SHOWN_MAX = 5
ANSWER, FILES, RUNS, STATUS = "the answer", "the names of files", "the runs", "the status"
FILE = "file "
"""What a difference within one file is called by, with its path behind."""

_PROMISES = {
    Nature.READ_ONLY: "it is read_only, which promises that it changes nothing",
    Nature.KEYED: "it is keyed, which promises that one key does the same thing only once",
    Nature.PROBED: "its probe said that the call had not taken effect",
    Nature.WRITE: "it is a plain write, which was to be run again",
}


class Unlike(Broken):
    """The tree came to something else than undisturbed."""

    def __init__(self, words: str, ended: Ended, charges: tuple[Lure, ...]) -> None:
        super().__init__(words)
        self.ended = ended
        self.charges = charges
        """What may be behind it: a tool, and when it was cut off; none when it is our own doing."""


def differences(ended: Ended, other: Ended) -> dict[str, str]:
    """What is not the same in two endings, each with words for it."""
    found: dict[str, str] = {}
    if ended.status != other.status:
        found[STATUS] = (
            f"ended as {ended.status} ({ended.error}), and undisturbed as {other.status}"
        )
    if ended.output != other.output:
        found[ANSWER] = f"the answer is {ended.output!r}, and undisturbed {other.output!r}"
    if ended.runs != other.runs:
        found[RUNS] = f"the runs are {ended.runs}, and undisturbed {other.runs}"
    names = sorted(ended.workspace.keys() ^ other.workspace.keys())
    if names:
        found[FILES] = (
            f"there only undisturbed, or only when struck: {', '.join(names[:SHOWN_MAX])}"
        )
    for path in sorted(ended.workspace.keys() & other.workspace.keys()):
        if ended.workspace[path] != other.workspace[path]:
            found[FILE + path] = f"other contents than undisturbed: {path}"
    return found


def check_like(ended: Ended, reference: Ended, varying: Collection[str] = ()) -> None:
    """The tree came to what it comes to undisturbed, but for what was told as not known.

    What is ``varying`` by itself says nothing. Raises Unlike.
    """
    if ended.unlike and not reference.unlike:
        return
    found = {
        what: words for what, words in differences(ended, reference).items() if what not in varying
    }
    if found:
        again, behind = _suspects(ended, reference, found)
        promise = "answer" if {STATUS, ANSWER, RUNS} & found.keys() else "workspace"
        said = "; ".join([*[*found.values()][:SHOWN_MAX], *_blame(again, behind)])
        charges = [Lure(REPEAT, tool) for tool in tool_names(again)]
        charges += [Lure(BEHIND, tool) for tool in tool_names(behind)]
        raise Unlike(f"{promise}: {said}", ended, tuple(charges))


def _suspects(
    ended: Ended, reference: Ended, found: Mapping[str, str]
) -> tuple[Sequence[Ran], Sequence[Ran]]:
    """Calls of the user's tools that were run again, and calls that may have left work behind."""
    again = [one for one in ended.users if one.attempts > 1]
    if not (FILES in found or any(what.startswith(FILE) for what in found)):
        # Of several, those that answered otherwise when they were run again.
        said = {(one.run, one.call): one.said for one in reference.ran}
        return [one for one in again if one.said != said.get((one.run, one.call))] or again, ()
    if again and not _lost(ended.workspace, reference.workspace):
        return again, ()
    return again, [one for one in ended.users if one.behind]


def _blame(again: Sequence[Ran], behind: Sequence[Ran]) -> Sequence[str]:
    """Which tool it is and why, or which it may be; nothing when no tool is suspected."""
    tools = tool_names([*again, *behind])
    if not tools:
        return ()
    if len(tools) == 1:
        return (f"tool {tools[0]} is not safe to repeat: {_why([*again, *behind][0])}",)
    parts = [f"a kill made {' and '.join(tool_names(again))} run again"] if again else []
    if behind:
        names = " and ".join(tool_names(behind))
        parts.append(f"what {names} may have left running behind an answer ended with its process")
    names = f"one of the tools {', '.join(tools)} is not safe to repeat"
    return (f"{names}, and which of them this round cannot tell: {', and '.join(parts)}",)


def _why(call: Ran) -> str:
    where = f"call {call.call} of run {call.run}"
    if call.attempts > 1:
        return f"{_PROMISES[call.nature]}, and {where} was run again after a kill"
    return (
        f"nothing was run again, but what {where} had left running behind its answer, a program or "
        "a thread, ended with its process"
    )


def _lost(workspace: Mapping[str, str], reference: Mapping[str, str]) -> bool:
    """Whether something is missing that is written undisturbed, so not only written again."""
    sizes = {path: int(there.split()[0]) for path, there in workspace.items()}
    return any(int(there.split()[0]) > sizes.get(path, -1) for path, there in reference.items())
