"""Server-sent events, taken apart as the bytes arrive, however the network cut them."""

LINE_MAX = 16 * 1024 * 1024
"""Bytes of one line; a longer one is refused, so that a server cannot fill the memory."""

_BOM = b"\xef\xbb\xbf"


class LineTooLong(Exception):
    """A line of the stream is over ``LINE_MAX``: a broken server, for its operator to mend."""


class EventParser:
    """Turns received bytes into the data of whole events; comments and other fields are dropped."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes and return the data of the events that are now whole; raises LineTooLong.

        Lines end with LF, CRLF or CR; an event with blank data is a sign of life and is left out.
        """
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            # The CR that ended the chunk before was the first half of a CRLF.
            chunk = chunk[1:]
            if not chunk:
                self._after_cr = False
                return []
        self._after_cr = chunk.endswith(b"\r")
        self._rest += chunk
        if len(self._rest) > LINE_MAX + len(chunk):
            raise LineTooLong(f"a line of the stream is over {LINE_MAX} bytes")
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        lines = bytes(self._rest).splitlines()
        self._rest.clear()
        if not chunk.endswith((b"\n", b"\r")):
            self._rest += lines.pop()
        return [data for line in lines if (data := self._line(line))]

    def close(self) -> list[bytes]:
        """Return what the last event held when the stream ended without the blank line after it."""
        last = bytes(self._rest)
        self._rest.clear()
        return [data for line in (last, b"") if (data := self._line(line))]

    def _line(self, line: bytes) -> bytes | None:
        """Take one line; the data of an event when the line is the blank one that ends it."""
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if line:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            return None
        data = b"\n".join(self._data)
        self._data.clear()
        return data if data and not data.isspace() else None
