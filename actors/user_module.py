"""A module of the user's own: found beside the configuration or installed, and loaded by name."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from actors.text import excerpt

_OURS = f"{Path(__file__).parent}{os.sep}"


class ModuleError(Exception):
    """A module that a run names, or what it should hold, is missing or broken; its author must act.

    Unlike a CatalogueError, it is about the code itself and not about names that go together.
    """


def load_module(name: str, search_path: Sequence[str] = ()) -> ModuleType:
    """Import a module, looked for in ``search_path`` last, so that no installed one is hidden.

    Raises ModuleError.
    """
    sys.path += [folder for folder in search_path if folder not in sys.path]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            where = ", ".join(search_path) or "the installed packages"
            words = f"there is no module {name} in {where}; put it there or correct the name"
            raise ModuleError(words) from error
        words = f"the module {name} needs {error.name}, which is missing; install it"
        raise ModuleError(words) from error
    except (Exception, SystemExit) as error:
        words = excerpt(f"{type(error).__name__}: {error}")
        words = f"the module {name} cannot be imported: {words}{_line(error)}"
        if isinstance(error, PermissionError):
            words += "; what a sandbox shall let it read is listed there under read"
        raise ModuleError(words) from error


def _line(error: BaseException) -> str:
    """Where it was raised, leaving out the import's own lines; a SyntaxError says it itself.

    What we refuse, such as a tool without annotations, is wrong where the user's code calls ours.
    """
    frames = traceback.extract_tb(error.__traceback__)[2:]
    own = [one for one in frames if not one.filename.startswith(("<", _OURS))]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
