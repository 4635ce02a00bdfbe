"""One actor in a fresh interpreter: ``python -P -m actors ROLE NAME``, channel on 3, log on 1."""

import sys

from actors.birth import CHANNEL_FD, live, prepare
from actors.oom_score import OomScore

if __name__ == "__main__":
    role, name = sys.argv[1:]
    OomScore().offer()
    prepare()
    live(role, name, channel_fd=CHANNEL_FD, log_fd=1)
