"""Who starts and stops actors: configuration, the tree of processes, the command line."""

# Configuration          supervisor.config
# Trees of runs          supervisor.supervisor
#
# Names are loaded when they are first asked for: ``exeunt --help`` needs none of them.

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.spec import LimitChange as LimitChange
    from supervisor.config import Config as Config
    from supervisor.config import ConfigError as ConfigError
    from supervisor.config import key_names as key_names
    from supervisor.config import load_config as load_config
    from supervisor.report import Report as Report
    from supervisor.state_dir import StateDir as StateDir
    from supervisor.state_dir import StateError as StateError
    from supervisor.supervisor import RunRefused as RunRefused
    from supervisor.supervisor import Supervisor as Supervisor
    from supervisor.supervisor import open_supervisor as open_supervisor

_HOME = {
    "Config": "config",
    "ConfigError": "config",
    "LimitChange": "supervisor",
    "Report": "report",
    "RunRefused": "supervisor",
    "StateDir": "state_dir",
    "StateError": "state_dir",
    "Supervisor": "supervisor",
    "key_names": "config",
    "load_config": "config",
    "open_supervisor": "supervisor",
}

__all__ = [
    "Config",
    "ConfigError",
    "LimitChange",
    "Report",
    "RunRefused",
    "StateDir",
    "StateError",
    "Supervisor",
    "key_names",
    "load_config",
    "open_supervisor",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"supervisor.{_HOME[name]}"), name)
