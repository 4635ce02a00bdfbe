"""What a tool may raise: words for the model, and the one kind that no words can mend."""


class ToolError(Exception):
    """A call that failed in a way the model can answer: its message is what the model reads.

    The model must act, with other arguments or another tool, so the message says what to do.
    Unlike PermanentError, the run goes on.
    """


class PermanentError(ToolError):
    """A failure that no message can mend, such as a permission denied; it ends the run.

    The operator must act. Unlike ToolError, asking again would only cost another turn; a
    PermissionError that leaves a tool is treated the same by whoever runs it.
    """


class ArgumentError(ToolError):
    """Arguments that do not fit the tool's schema, so that the tool was not called at all.

    The model must act. Unlike other ToolErrors, nothing has happened yet.
    """
