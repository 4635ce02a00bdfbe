"""What the scripted provider says: a run with every kind of call, and small ones for one thing."""

from actors.testing.scripts import Call, Conversation, Say, Step, script

ANSWER = "The errands are done."

ERRAND: tuple[tuple[Step, ...], ...] = (
    # Two reads side by side.
    (Call("look", {"place": "the hall"}), Call("look", {"place": "the yard"})),
    (Say("Now something that lasts."), Call("put", {"text": "a brick"})),
    (Call("pay", {"amount": 7}),),
    # A write between two reads waits for the one and holds back the other.
    (
        Call("look", {"place": "the shop"}),
        Call("put", {"text": "a beam"}),
        Call("look", {"place": "the roof"}),
    ),
    # A result over a page of the disk, beside a read that was made before and twins.
    (
        Call("survey", {"place": "the land"}),
        Call("look", {"place": "the roof"}),
        Call("look", {"place": "the gate"}),
        Call("look", {"place": "the gate"}),
    ),
    (Call("stumble"), Call("send", {"to": "the mason"})),
    (Say(ANSWER),),
)


def _in_turn(name: str, *steps: tuple[Step, ...]) -> None:
    @script(name)
    def play(conversation: Conversation) -> tuple[Step, ...]:
        return steps[conversation.turn]


_in_turn("errand", *ERRAND)
_in_turn(
    "sanction",
    (Call("look", {"place": "the wall"}),),
    (Call("demolish", {"place": "the wall"}),),
    (Say(ANSWER),),
)
_in_turn(
    "poisoned",
    (Call("look", {"place": "the well"}), Call("poison")),
    (Call("put", {"text": "a lid"}),),
    (Say(ANSWER),),
)
_in_turn("wedged", (Call("look", {"place": "the door"}),), (Call("wedge"),), (Say(ANSWER),))
_in_turn("hammering", (Call("hammer", {"seconds": 0.5}),), (Say(ANSWER),))
_in_turn(
    "delegating",
    (Call("look", {"place": "the map"}),),
    (Call("inquire", {"question": "north?"}), Call("inquire", {"question": "south?"})),
    (Call("put", {"text": "a flag"}),),
    (Say(ANSWER),),
)
_in_turn(
    "inquiring",
    (Call("look", {"place": "the path"}),),
    (Call("put", {"text": "a cairn"}),),
    (Say("It can be walked."),),
)
