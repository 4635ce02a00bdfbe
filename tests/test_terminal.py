"""Text for terminals: nothing raw gets through, lines keep to a width, colour knows its stream."""

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.terminal import Style, one_line, visible

# Controls, format and bidi characters, surrogates, line and paragraph separators.
_ACTED_ON = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_ANY = st.text(st.characters(exclude_categories=())) | st.text(
    "\x1b[]\x07\x9b\u202e\u2028\ud83da\n\t"
)


def _acted_on(text: str) -> list[str]:
    return [char for char in text if unicodedata.category(char) in _ACTED_ON]


@given(_ANY)
def test_visible_lets_no_acting_character_through(text: str):
    """Whatever text comes, what is shown holds no character that a terminal acts on or hides."""
    assert _acted_on(visible(text)) == []


@given(_ANY)
def test_visible_multiline_lets_newlines_and_tabs_through_alone(text: str):
    """With multiline, newlines and tabs stay as they are and nothing else does."""
    shown = visible(text, multiline=True)
    assert set(_acted_on(shown)) <= {"\n", "\t"}
    assert shown.count("\n") == text.count("\n")


@given(st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs"))))
def test_visible_leaves_words_of_every_script_alone(text: str):
    """Letters, marks, digits, punctuation, symbols and spaces are shown as they are."""
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\x9b2Jb\x7f", r"a\x9b2Jb\x7f"),
        ("exe\u202etxt", r"exe\u202etxt"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("over\rwrite\nnext\tcell", r"over\rwrite\nnext\tcell"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud83d", r"\ud83d"),
        ("naïve 漢字 🦊\u3000x", "naïve 漢字 🦊\u3000x"),
    ],
)
def test_visible_shows_the_escape(text: str, shown: str):
    """A neutralised character is shown by its code, so that a person sees that it was there."""
    assert shown == visible(text)


@given(_ANY, st.integers(0, 40))
def test_one_line_fits_its_width(text: str, width: int):
    """The line is never wider than asked, and never holds a character that acts."""
    line = one_line(text, width)
    cells = sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in line
    )
    assert cells <= width
    assert _acted_on(line) == []


def test_one_line_cuts_with_an_ellipsis():
    """A text that fits stays whole, a longer one says that it was cut; a wide character is two."""
    assert one_line("  two\n\twords ", 9) == "two words"
    assert one_line("two words", 8) == "two wor…"
    assert one_line("漢字漢字", 5) == "漢字…"
    assert one_line("漢字漢字", 4) == "漢…"
    assert one_line("word", 0) == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_style_colours_a_terminal(monkeypatch: pytest.MonkeyPatch):
    """On a terminal, text is put between an attribute and a reset."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    style = Style(_Terminal())
    assert style.red("no") == "\x1b[31mno\x1b[0m"
    assert [style.dim(""), style.bold(""), style.green("")] == [
        f"\x1b[{code}m\x1b[0m" for code in (2, 1, 32)
    ]


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_style_is_plain_where_colour_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
):
    """NO_COLOR and a dumb terminal switch colours off."""
    monkeypatch.setenv(variable, value)
    assert Style(_Terminal()).red("no") == "no"


def test_style_is_plain_in_a_pipe():
    """What is no terminal gets no escape sequences."""
    assert Style(io.StringIO()).bold("yes") == "yes"
