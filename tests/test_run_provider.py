"""Whole runs against providers that fail: what is asked again, what ends the run, what it costs."""

import time

import pytest
from world import World, usd

from actors.opening import OpenRun
from actors.outcome import Status
from actors.testing.faults import BILLED, Fault, FaultKind
from actors.testing.scripts import Say

PLAN_ANSWER = "errors.log mentions a timeout: worker 7 timed out after 30000 ms."


def fault(kind: str, turn: int = 2, times: int = 1, retry_after: str | None = None) -> Fault:
    return Fault(turn=turn, kind=FaultKind(kind), times=times, retry_after=retry_after)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize(
    "kind", ["429", "503", "500", "cut", "broken_stream", "malformed", "html200", "stream_error"]
)
async def test_a_passing_failure_is_asked_again(world: World, kind: str, stream: bool) -> None:
    """The turn is saved once, the run is the same run, and the bill is within what is said."""
    await world.provide("plan", faults=(fault(kind),))
    world.ask(stream=stream)
    outcome = await world.perform()
    assert outcome.status is Status.COMPLETED
    assert outcome.output == PLAN_ANSWER
    head = world.state.head
    assert head.turns == 3
    (failed,) = world.lines("turn_failed")
    assert failed["turn"] == 2
    billed = world.billed_nusd()
    assert head.cost_nusd <= billed <= head.cost_nusd + head.maybe_nusd
    if FaultKind(kind) not in BILLED and kind not in ("html200", "stream_error"):
        assert head.maybe_nusd == 0


async def test_silence_is_asked_again(world: World) -> None:
    """A provider that never answers is given up after ``timeout_s`` of silence."""
    await world.provide("plan", faults=(fault("timeout"),))
    world.ask(timeout_seconds=0.1)
    assert (await world.perform()).output == PLAN_ANSWER
    assert "timeout" in [line["kind"] for line in world.lines("turn_failed")]
    assert world.state.head.maybe_nusd > 0


async def test_flaky_ends_as_plan_does(world: World) -> None:
    """A 429, a 503 and a broken stream on the way change nothing but what may have been spent."""
    await world.provide("flaky")
    outcome = await world.perform()
    assert outcome.output == PLAN_ANSWER
    assert world.state.head.tool_runs == 2
    assert [line["turn"] for line in world.lines("turn_failed")] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["insufficient_quota", "401", "overflow", "overflow_llama"])
async def test_what_no_asking_mends_fails_at_once(world: World, kind: str) -> None:
    """Asked once, and the run ends with the provider's words."""
    await world.provide("plan", faults=(fault(kind, times=100),))
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert "HTTP 4" in (outcome.error or "")
    assert len(world.lines("turn_failed")) == 1
    assert world.state.head.turns == 1


async def test_retries_come_to_an_end(world: World) -> None:
    """``max_retries`` times, then the run has failed, with the last words of the provider."""
    await world.provide("plan", faults=(fault("503", times=100),))
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert (outcome.error or "").startswith("gave up after 4 attempts: ")
    assert len(world.lines("turn_failed")) == 4


async def test_retries_do_not_count_as_turns(world: World) -> None:
    """A turn is a saved reply: with ``max_turns = 3`` a retried run still answers."""
    await world.provide("plan", faults=(fault("500", times=2),))
    world.limit(max_turns=3)
    assert (await world.perform()).status is Status.COMPLETED


async def test_retry_after_is_kept(world: World) -> None:
    """What the provider asks for is waited, and the trace says how long."""
    await world.provide("plan", faults=(fault("429", retry_after="0.1"),))
    began = time.monotonic()
    await world.perform()
    assert time.monotonic() - began >= 0.1
    assert world.lines("turn_failed")[0]["retry_in_s"] == pytest.approx(0.1, abs=0.01)


async def test_a_wait_for_the_provider_can_be_stopped(world: World) -> None:
    """Retry-After may be a minute; Stop is not."""
    await world.provide("plan", faults=(fault("429", turn=1, retry_after="50"),))

    async def press(run: OpenRun) -> None:
        await world.told["turn_failed"].wait()
        run.request_stop("enough", "user")

    outcome = await world.perform(meanwhile=press)
    assert outcome.reason == "enough"


async def test_a_budget_counts_what_was_possibly_spent(world: World) -> None:
    """Cut replies may have been billed, so they bound what a failing provider can cost."""
    await world.provide("plan", faults=(fault("cut", turn=1, times=100),))
    world.ask(max_retries=100, max_output_tokens=300)
    world.limit(max_budget_nusd=usd(0.02))
    outcome = await world.perform()
    assert outcome.status is Status.MAX_BUDGET
    assert world.billed_nusd() <= world.state.head.maybe_nusd <= usd(0.02)


@pytest.mark.parametrize("kind", ["no_usage", "null_usage"])
async def test_a_reply_without_usage_is_counted_by_ourselves(world: World, kind: str) -> None:
    """Estimated and still charged: never nothing."""
    await world.provide("plan", faults=(fault(kind),))
    await world.perform()
    head = world.state.head
    assert head.estimated_turns == 1
    assert head.cost_nusd == world.billed_nusd()
    assert [line.get("estimated") for line in world.lines("turn")] == [None, True, None]


async def test_a_provider_that_never_tells_usage_is_named_once(world: World) -> None:
    """Each turn is marked as estimated, and why stands in the trace a single time."""
    await world.provide("plan", faults=(fault("no_usage", turn=1), fault("no_usage", turn=2)))
    await world.perform()
    assert world.state.head.estimated_turns == 2
    assert [line.get("notes") for line in world.lines("turn")] == [
        ["usage missing: tokens are counted by our own count"],
        None,
        None,
    ]


async def test_an_unreachable_provider_fails_the_run_in_words(world: World) -> None:
    """Nobody listens there: tried, given up, said."""
    await world.provide("plan")
    world.base_url = "http://127.0.0.1:9/v1"
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert "no connection" in (outcome.error or "")
    assert world.state.head.maybe_nusd == 0


async def test_a_window_that_is_too_small_is_said_with_its_numbers(world: World) -> None:
    """A request refused as invalid is never sent again."""
    await world.provide("runaway", window_tokens=400)
    outcome = await world.perform()
    assert outcome.status is Status.FAILED
    assert "400 tokens" in (outcome.error or "")
    assert len(world.lines("turn_failed")) == 1


async def test_a_key_that_the_provider_quotes_is_recorded_nowhere(world: World) -> None:
    """The key goes to the provider and into no journal, trace or ending."""
    world.api_key = "sk-very-secret-key"
    await world.provide([Say("hello")], faults=(fault("401", turn=1),))
    await world.perform()
    for path in world.run_dir.iterdir():
        assert b"sk-very-secret" not in path.read_bytes(), path


async def test_text_that_cannot_be_encoded_is_saved(world: World) -> None:
    """A lone surrogate in a model's text neither loses the reply nor bills it twice."""
    await world.provide([Say("half \ud83d a pair")])
    outcome = await world.perform()
    assert outcome.output == "half \ufffd a pair"
    assert len(world.bills()) == 1


async def test_the_harness_adds_little_to_the_providers_time(world: World) -> None:
    """The task takes turns times latency, and a few milliseconds of ours."""
    await world.provide("plan", latency_ms=20)
    began = time.monotonic()
    await world.perform()
    took = time.monotonic() - began
    assert 0.06 <= took < 0.25
