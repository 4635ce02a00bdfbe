"""Event streams as bytes arrive."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import sse
from actors.sse import EventParser, LineTooLong


def parsed(*chunks):
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": PROCESSING\n\n: ping\n\ndata: a\n\n", [b"a"]),
        (b"data:\n\ndata: \n\ndata: a\n\n", [b"a"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"data\n\ndatum: x\n\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        ("data: ü中😀\n\n".encode(), ["ü中😀".encode()]),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_events_come_out_the_same_however_they_are_cut(stream, events):
    """The rules of server-sent events hold at one byte per chunk and at every single split."""
    assert parsed(stream) == events
    assert parsed(*(stream[i : i + 1] for i in range(len(stream)))) == events
    for at in range(len(stream) + 1):
        assert parsed(stream[:at], stream[at:]) == events


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([b"data:", b" ", b"\r", b"\n", b"x", b":", b"\xc3"])), st.data())
def test_events_do_not_depend_on_the_splits(tokens, data):
    """Any bytes in any cut give what they give in one piece."""
    stream = b"".join(tokens)
    at = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    cuts = [stream[a:b] for a, b in zip([0, *at], [*at, len(stream)], strict=True)]
    assert parsed(*cuts) == parsed(stream)


def test_a_line_over_the_limit_is_refused(monkeypatch):
    """A line without an end cannot fill the memory."""
    monkeypatch.setattr(sse, "LINE_MAX", 1000)
    parser = EventParser()
    for _ in range(101):
        parser.feed(b"x" * 10)
    with pytest.raises(LineTooLong):
        parser.feed(b"x")
