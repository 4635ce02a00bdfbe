"""Eight children that outgrow the model's window, in real processes below one lead."""

import json
from pathlib import Path

import pytest
from premises import Premises, hosted

from actors.events import Asked, AskFailed, ContextFitted
from actors.journal import read_events
from actors.testing.chapters import CHAPTERS, write_chapters
from actors.window import PolicyName
from actors.window_words import MODEL_PARAGRAPH
from supervisor.report import Report

pytestmark = pytest.mark.slow
MANY, WINDOW, CHARS = 8, 3000, 750
LIBRARY = """
[run]
agent = "lead"
task = "Ask {many} questions."
[provider]
kind = "scripted"
window_tokens = {window}
max_output_tokens = 300
[agents.lead]
model = "lead"
tools = ["research"]
[agents.lead.context]
budget_tokens = {budget}
[agents.reader]
model = "chapters"
system = {system}
tools = ["read_file"]
[agents.reader.limits]
max_turns = 100
[agents.reader.context]
budget_tokens = {budget}
policy = "{policy}"
[tools.research]
agent = "reader"
[tools.files]
root = "workspace"
[state]
durability = "process"
"""


@pytest.fixture
def premises(tmp_path: Path) -> Premises:
    """A folder with the book in its workspace."""
    premises = Premises(tmp_path)
    write_chapters(premises.folder / "workspace", CHARS)
    return premises


async def read(
    premises: Premises,
    policy: PolicyName,
    system: str = "You read books.",
    window: int = WINDOW,
) -> list[Report]:
    """Have a lead ask eight readers; the readers' reports."""
    text = LIBRARY.format(
        many=MANY, window=window, budget=WINDOW, policy=policy, system=json.dumps(system)
    )
    async with premises.supervisor() as supervisor:
        report = await supervisor.run(premises.config_of(text), "r1")
    assert report.status == "completed", report.error
    assert len(report.children) == MANY
    return list(report.children)


def events(premises: Premises, child: Report, kind: type) -> list[object]:
    """The events of one kind in a child's journal."""
    found = read_events(premises.state_dir / "runs" / child.run_id)
    return [event for event in found if isinstance(event, kind)]


@hosted
async def test_children_that_nobody_fits_are_all_refused(premises: Premises) -> None:
    """They read on, as somebody told them to; all eight fail, at once and in words for a person."""
    children = await read(premises, "off", f"You read books. {MODEL_PARAGRAPH}")
    assert [child.status for child in children] == ["failed"] * MANY
    for child in children:
        assert "longer than the model's window; nothing is lost" in str(child.error)
        (failed,) = events(premises, child, AskFailed)
        assert isinstance(failed, AskFailed)
        # It is no outage, so it was not asked again; what was read until then is in the journal.
        assert (failed.kind, failed.permanent) == ("overflow", True)
        assert child.turns > 2


@hosted
async def test_children_that_are_fitted_all_finish(premises: Premises) -> None:
    """None is refused, each reads forty chapters of forty, and the history keeps them whole."""
    children = await read(premises, "band")
    for child in children:
        assert (child.status, child.output) == ("completed", "I have read 40 of 40 chapters.")
        assert events(premises, child, AskFailed) == []
        assert events(premises, child, ContextFitted)
        asked = events(premises, child, Asked)
        assert all(isinstance(one, Asked) and one.input_estimate <= WINDOW for one in asked)
        assert child.tool_runs == CHAPTERS


@hosted
async def test_children_that_are_not_told_give_up(premises: Premises) -> None:
    """With the policy off and room for the whole book they read two chapters of forty."""
    children = await read(premises, "off", window=1_000_000)
    for child in children:
        assert child.status == "completed"
        assert "2 of 40 chapters and stop here to save space" in str(child.output)
