"""Long runs in many languages against a model whose tokenizer is not ours: is anything refused?

    python examples/window_languages.py [REQUESTS]

The provider counts with o200k, times a scale that the run does not know; the run counts by bytes
and learns from the usage that it is told. Its budget is 95 % of the window.
"""

import random
import sys
from collections.abc import Sequence

from actors.calibration import Calibration
from actors.composition import Composition
from actors.estimate import counter_for
from actors.fit import HEADROOM, Fitted
from actors.messages import Assistant, Prompt, ResultKind, ToolCall, ref_of
from actors.request import request_body
from actors.testing.chat import decode
from actors.testing.corpus import CORPUS, shuffled
from actors.testing.meter import Meter
from actors.window import Marks, Policy

LANGUAGES = ("English", "code", "JSON", "logs", "Russian", "Chinese", "Japanese", "Hindi", "Arabic")
SCALES = (0.8, 1.0, 1.6)
WINDOW = 8000
REQUESTS = 600


def refusals(
    languages: Sequence[str], scale: float, requests: int = REQUESTS, window: int = WINDOW
) -> int:
    """Requests over the window; a run of more languages goes from one to the next."""
    rng = random.Random(3)
    prompts = (Prompt("system", "You read."), Prompt("user", "Read."))
    composed = Composition(
        prompts, b"[]", counter_for("other"), int(window * HEADROOM), Policy(high=1.0)
    )
    marks, known, meter, refused = Marks(), Calibration(), Meter(), 0
    for turn in range(1, requests + 1):
        result = composed.fit(marks, known, cold=False)
        assert isinstance(result, Fitted)
        marks = result.marks
        body = request_body("m", b"[]", composed.messages(marks), 100, False)
        used = int(meter.measure(decode(body)).input_tokens * scale)
        refused += used > window
        known = known.measured(result.raw, used, result.rounds, appended=not result.changed)
        language = languages[turn * len(languages) // (requests + 1)]
        text = shuffled(language, rng.randint(20, 400), rng)
        call = ToolCall("x", "read_file", f'{{"path":"file-{turn}.txt"}}')
        composed.add(Assistant(None, (call,)), [ref_of(turn, 0)], [(ResultKind.OK, text)])
    return refused


def main() -> int:
    """Print the requests that were refused, for each language and tokenizer."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    print(f"{'refused of ' + str(requests):<16}" + "".join(f"{f'x{s}':>8}" for s in SCALES))
    total = 0
    for language in CORPUS:
        found = [refusals([language], scale, requests) for scale in SCALES]
        print(f"{language:<16}" + "".join(f"{count:>8}" for count in found))
        total += sum(found)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
