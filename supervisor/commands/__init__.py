"""The verbs of the command line, one module a family; each is imported when it is asked for."""


class UsageError(Exception):
    """What was asked for cannot be done, and nothing was changed; the words say what to do."""
