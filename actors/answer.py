"""The body of a successful answer: a stream or one document, whatever was asked for."""

from actors.provider_error import ProviderError, broken
from actors.provider_json import BOM
from actors.reply import Reply, parse_document
from actors.sse import EventParser, LineTooLong
from actors.stream import StreamAssembly

_STREAM_STARTS = b"d:eir"  # data, a comment, event, id, retry

BODY_MAX = 64 * 1024 * 1024
"""Bytes of one body, after decompression."""


class Answer:
    """Takes a body as it arrives and tells when nothing more is needed.

    What is wrong with the body is kept for ``reply``, so that reading it has one way out.
    """

    def __init__(self) -> None:
        self._size = 0
        self._failure: ProviderError | None = None
        self._start = bytearray()
        self._is_document: bool | None = None
        self._events = EventParser()
        self._stream = StreamAssembly()

    @property
    def is_finished(self) -> bool:
        """Whether the reply is whole; only its usage may still come. Known of streams alone."""
        return self._stream.is_finished

    @property
    def is_done(self) -> bool:
        """Whether nothing that may still come matters: after the end mark, or after an error."""
        return self._stream.is_done or self._failure is not None

    def feed(self, chunk: bytes) -> None:
        """Add bytes, at most ``BODY_MAX`` in all; whatever comes after an error is dropped."""
        if self._failure is not None:
            return
        self._size += len(chunk)
        try:
            if self._size > BODY_MAX:
                raise broken(f"the answer is over {BODY_MAX} bytes")
            if self._is_document:
                self._start += chunk
            elif self._is_document is None:
                self._begin(chunk)
            else:
                self._take(chunk)
        except ProviderError as error:
            self._failure = error

    def reply(self) -> Reply:
        """The reply in all that was fed; raises ProviderError when there is no whole one."""
        if self._failure is not None:
            raise self._failure
        if self._is_document is not False:
            return parse_document(bytes(self._start))
        for data in self._events.close():
            self._stream.add(data)
        return self._stream.reply()

    def _begin(self, chunk: bytes) -> None:
        """Tell the kind by the first character: content types are wrong too often."""
        self._start += chunk
        head = self._start.removeprefix(BOM).lstrip()
        if head and not BOM.startswith(head):
            self._is_document = head[0] not in _STREAM_STARTS
            if not self._is_document:
                self._take(bytes(self._start))
                self._start.clear()

    def _take(self, chunk: bytes) -> None:
        try:
            events = self._events.feed(chunk)
        except LineTooLong as error:
            raise broken(str(error)) from None
        for data in events:
            self._stream.add(data)
