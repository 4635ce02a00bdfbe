"""Who types: the name under which a person's verdicts and messages are recorded."""

import os
import pwd


def user_name() -> str:
    """The login name of this process's user, or its number where it has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
