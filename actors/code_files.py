"""Which files a run's own modules are: what must be read to import them, and no more.

A module beside the configuration must not open that whole folder to a sandbox that names what may
be read, as there may be keys and other runs in it.
"""

from importlib.machinery import all_suffixes
from pathlib import Path

from actors.spec import RunSpec


def code_files(spec: RunSpec) -> list[Path]:
    """Files and packages of the modules that a run names, in each folder where they are sought."""
    conditions = (one.partition(":")[0] for one in spec.limits.stop_when)
    names = {name.partition(".")[0] for name in (*spec.tools.modules, *conditions)}
    found = [
        Path(folder, part)
        for folder in spec.tools.search_path
        for name in sorted(names)
        for part in (name, *(f"{name}{suffix}" for suffix in all_suffixes()))
    ]
    if names:
        found += [Path(folder, "__pycache__") for folder in spec.tools.search_path]
    return found
