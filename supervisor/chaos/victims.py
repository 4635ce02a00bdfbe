"""Who is struck: the processes that the words of a plan stand for at this moment."""

from supervisor.chaos.life import Life, descendants, name_of
from supervisor.chaos.plan import ROOT, SUPERVISOR, TREE, ZYGOTE, Strike
from supervisor.chaos.world import Home
from supervisor.state_dir import StateDir

ZYGOTE_NAME = "exeunt-zygote"


def find(home: Home, life: Life, strike: Strike, word: str) -> list[int]:
    """The pids of one kind of victim; none when it is not there."""
    if word == SUPERVISOR:
        return [life.pid]
    if word == TREE:
        return [life.pid, *descendants(life.pid)]
    if word == ZYGOTE:
        return [pid for pid in descendants(life.pid) if name_of(pid) == ZYGOTE_NAME]
    run = ROOT if word == ROOT else strike.boundary.run
    holder = StateDir(home.state_dir).holder(home.full(run))
    return [] if holder is None else [holder]
