"""Programs as a user who is not root: what root alone may see or do is no proof for others."""

import os
import shutil

import pytest

NOBODY = 65534


def as_nobody() -> list[str]:
    """Words that start a program as a user who is not root, where root would hide a failure."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root may read everything, and there is no setpriv to be somebody else")
    # The interpreter may lie in a folder of root's, which this capability alone lets it read.
    words = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups"
    rights = "--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search"
    return [setpriv, *words.split(), *rights.split(), "--bounding-set=-all,+dac_read_search"]
