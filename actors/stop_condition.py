"""A stop condition of the user's own: a predicate over the run's state, named in ``stop_when``."""

from collections.abc import Sequence

from actors.decision import StopCondition
from actors.state import State
from actors.text import clean
from actors.user_module import ModuleError, load_module


def load_condition(path: str, search_path: Sequence[str] = ()) -> StopCondition:
    """The predicate that ``module:function`` names; raises ModuleError.

    It returns why the run stops, or None; one that raises stops the run.
    """
    module, _, name = path.partition(":")
    function: StopCondition | None = getattr(load_module(module, search_path), name, None)
    if not callable(function):
        raise ModuleError(f"stop_when names {path}, and {module} has no function {name}")

    def condition(state: State) -> str | None:
        try:
            reason = function(state)
        except Exception as error:
            # A limit that cannot be checked is one that is reached.
            return clean(f"{path} raised {error!r}")
        return clean(str(reason)) if reason else None

    return condition
