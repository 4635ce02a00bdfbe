"""The frames between a supervisor and one actor, none of which is believed blindly."""

import re
from collections.abc import AsyncGenerator

import msgspec
import trio

from actors.wire import (
    ChildEnded,
    Ended,
    FrameError,
    FromActor,
    Hello,
    Leaving,
    Refused,
    StartChild,
    StopChild,
    Tell,
    ToActor,
    Traced,
    encode,
    from_actor,
)
from supervisor.spawned import Process

TELLS_MAX = 64
"""Messages of persons that wait for an actor."""
_READ_SIZE = 64 * 1024
_REF = re.compile(r"[1-9][0-9]{0,8}\.[0-9]{1,9}")


class Talk:
    """What is said with the actor in one process."""

    def __init__(self, process: Process, run_id: str) -> None:
        self.process = process
        self.opened = trio.Event()
        """It has said that the journal is open."""
        self.last: FromActor | None = None
        self.waiting: set[str] = set()
        """The refs of the children that it asked for and was not told about."""
        self._line_start = b'{"run_id":%s,' % msgspec.json.encode(run_id)
        self._decoder = from_actor()
        self._sending = trio.Lock()
        self._tells, self._told = trio.open_memory_channel[Tell](TELLS_MAX)

    async def send(self, frame: ToActor) -> None:
        """Send a frame; nothing happens when the actor is dying.

        A cancellation may cut it in the middle, after which the actor is only good to be killed.
        """
        async with self._sending:
            try:
                await self.process.channel.send_all(encode(frame))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # It is dying, which ``frames`` finds out.

    def tell(self, frame: Tell) -> bool:
        """Hand over a message; False when too many wait for an actor that reads none.

        Who asks for this does not wait, and so cannot cut the frame by going away.
        """
        try:
            self._tells.send_nowait(frame)
        except trio.WouldBlock:
            return False
        return True

    async def pass_tells_on(self) -> None:
        """Send what is handed over, until cancelled with the end of the process."""
        async for frame in self._told:
            await self.send(frame)

    async def tell_ended(self, ref: str, refused: str = "") -> None:
        """Say that a child has ended, once."""
        if ref in self.waiting:
            self.waiting.remove(ref)
            await self.send(ChildEnded(ref, refused))

    async def frames(self) -> AsyncGenerator[FromActor, None]:
        """What the actor says, to its last word or its death; garbage ends it."""
        while not isinstance(self.last, Ended | Refused | Leaving):
            try:
                data = await self.process.channel.receive_some(_READ_SIZE)
                received = self._decoder.feed(data) if data else []
            except trio.BrokenResourceError:
                return
            except FrameError as error:
                self.last = Refused("wire", f"the actor said what cannot be understood: {error}")
                return
            if not data:
                return
            for frame in received:
                if wrong := self._wrong(frame):
                    self.last = Refused("wire", f"the actor said what it cannot know: {wrong}")
                    return
                if isinstance(frame, Hello):
                    self.opened.set()
                if isinstance(frame, Ended | Refused | Leaving):
                    self.last = frame
                yield frame

    def _wrong(self, frame: FromActor) -> str:
        """What is wrong with a frame that can be read; nothing when it may be from this actor."""
        match frame:
            case Traced(line=line) if not line.startswith(self._line_start):
                return "a line of another run's trace"
            case StartChild(ref=ref) | StopChild(ref=ref) if not _REF.fullmatch(ref):
                return f"a call {ref!r}"
            case StartChild(ref=ref) if ref in self.waiting:
                return f"a second child of the call {ref}"
            case _:
                return ""
