"""A model that calls the tools that its task names, one a turn, or side by side behind a +."""

from collections.abc import Sequence

from actors.testing.scripts import Call, Conversation, Say, Step, script

ARGUMENTS = {
    "note": {"line": "n"},
    "note_too": {"line": "t"},
    "note_last": {"line": "l"},
    "pay": {"amount": 3},
    "pay_once": {"amount": 4},
    "wait": {"seconds": 0.8},
}


@script("in_turn")
def in_turn(conversation: Conversation) -> Sequence[Step]:
    turns = conversation.task.split()
    if conversation.turn == len(turns):
        return [Say(" | ".join(conversation.results))]
    names = turns[conversation.turn].split("+")
    return [Call(name, ARGUMENTS.get(name, {})) for name in names]
