"""What the command line prints: safe for a terminal, and the same JSON."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor import output
from supervisor.output import json_text

texts = st.text(alphabet=st.characters(), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(value=values)
def test_json_for_a_terminal_is_the_same_json_and_all_printable(value: Any) -> None:
    """No character that a terminal acts on is left, whatever a model wrote."""
    shown = json_text(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    assert shown.isprintable()
    expected = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert json.loads(shown) == json.loads(expected)


def test_separators_that_cut_lines_are_escaped() -> None:
    """The four that msgspec leaves as they are, and an astral private one."""
    line = json_text('["\x7f\x85\x9b\u2028\u202e\U000f0000é中"]'.encode())
    assert line == '["\\u007f\\u0085\\u009b\\u2028\\u202e\\udb80\\udc00é中"]'


def test_a_document_with_a_lone_surrogate_is_printed_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file name that is no UTF-8 may stand in an error; it is mended and not a crash."""
    assert output.document({"error": "no file b\udcff"})
    assert json.loads(capsys.readouterr().out) == {"error": "no file b\ufffd"}


def test_a_note_shows_escapes_and_survives_a_stream_that_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Standard error may have been closed by whoever read it."""
    output.note("a\x1b[2Jb\nc")
    assert capsys.readouterr().err == "a\\x1b[2Jb\nc\n"

    class Full(io.StringIO):
        def write(self, s: str) -> int:
            raise BlockingIOError

    output.write_note(Full(), "nobody reads this")
