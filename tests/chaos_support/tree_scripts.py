"""What the models of a tree say: a lead with two scouts, whose answers tell all that they read."""

import hashlib

from actors.testing.scripts import Call, Conversation, Say, Step, script


def _told(conversation: Conversation) -> Say:
    """An answer that is another one as soon as a single result is."""
    digest = hashlib.blake2b("\0".join(conversation.results).encode(), digest_size=6).hexdigest()
    return Say(f"{len(conversation.results)} results, {digest}")


def _in_turn(name: str, *steps: tuple[Step, ...]) -> None:
    @script(name)
    def play(conversation: Conversation) -> tuple[Step, ...]:
        if conversation.turn == len(steps):
            return (_told(conversation),)
        return steps[conversation.turn]


_in_turn(
    "leading",
    (Call("look", {"place": "the map"}),),
    (Call("scout", {"question": "north?"}), Call("scout", {"question": "south?"})),
    (Call("put", {"text": "a flag"}),),
    (Call("pay", {"amount": 3}),),
)
_in_turn(
    "scouting",
    (Call("look", {"place": "the path"}), Call("survey", {"place": "the hill"})),
    (Call("put", {"text": "a cairn"}),),
    (Call("pay", {"amount": 7}),),
)
_in_turn("hammering_scout", (Call("hammer", {"seconds": 0.15}),), (Call("pay", {"amount": 7}),))
_in_turn("daemons", (Call("daemonise"),), (Call("put", {"text": "a cairn"}),))
_in_turn("wedged_scout", (Call("look", {"place": "the door"}),), (Call("wedge"),))
_in_turn("hog", (Call("look", {"place": "the sty"}),), (Call("hog"),))
