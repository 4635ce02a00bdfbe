"""``python -m supervisor`` is ``exeunt``."""

import sys

from supervisor.cli import main

if __name__ == "__main__":
    sys.exit(main())
