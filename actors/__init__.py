"""What a tool's author needs; everything else is imported from the module that holds it.

Names are looked up when they are first used (PEP 562), so that importing the package is cheap for
those who only want one of its small modules.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.messages import Nature as Nature
    from actors.tool_context import ToolContext as ToolContext
    from actors.tool_errors import PermanentError as PermanentError
    from actors.tool_errors import ToolError as ToolError
    from actors.tools import tool as tool

__all__ = ["Nature", "PermanentError", "ToolContext", "ToolError", "tool"]

_HOMES = {
    "Nature": "actors.messages",
    "PermanentError": "actors.tool_errors",
    "ToolContext": "actors.tool_context",
    "ToolError": "actors.tool_errors",
    "tool": "actors.tools",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds a name of ours."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
