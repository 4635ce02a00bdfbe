"""Scripts for runs in real processes, whose provider imports this module."""

from actors.testing.scripts import Call, Conversation, Say, script


@script("waits")
def waits(conversation: Conversation) -> Say | Call:
    """Call ``wait`` once, then answer."""
    return Call("wait") if conversation.turn == 0 else Say("done")
