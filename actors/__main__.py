"""One actor in a fresh interpreter: ``python -P -m actors ROLE NAME``, channel on 3, log on 1."""

import sys

from actors.birth import CHANNEL_FD, live

if __name__ == "__main__":
    role, name = sys.argv[1:]
    live(role, name, channel_fd=CHANNEL_FD, log_fd=1)
