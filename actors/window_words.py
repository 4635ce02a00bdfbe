"""What the model reads about its window. All of it is constant, so that no prefix ever changes."""

MODEL_PARAGRAPH = (
    "Your context window is managed for you. When it fills up, the oldest tool results are cleared "
    "or taken out; the newest ones always stay. Do not stop early to save space: go on until the "
    "task is done. If you need a result that was cleared, run the tool again."
)
"""Stands at the end of the system prompt wherever a window policy is on."""

CLEARED_NOTE = (
    "[This result was cleared to fit the context window. Run the tool again if you need it.]"
)
"""Stands in place of a result that was cleared."""

FOLDED_NOTE = (
    "[Earlier tool calls of this run were taken out to fit the context window. "
    "Run a tool again if you need its result.]"
)
"""Heads the message that stands for folded rounds."""
