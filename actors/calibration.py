"""How far our counts are from the provider's, learned from the usage of each reply."""

import math

import msgspec

K_MIN, K_MAX = 0.25, 8.0
"""A server whose usage says anything else is not believed."""
DELTA_TOKENS_MIN = 256
"""A smaller difference between two requests says nothing about its text."""


class Calibration(msgspec.Struct, frozen=True, array_like=True):
    """Saved with every reply. ``k`` is 0 before the first usage; tokens in ``raw`` are our counts.

    A correction changes what a request is expected to be, and never what has been cleared.
    """

    k: float = 0.0
    """Their tokens for one of ours, over the whole of the last request."""
    k_delta: float = 0.0
    """The same for what the last request added to the one before it."""
    raw: int = 0
    used: int = 0
    rounds: int = 0
    """Rounds that the last measured request had, folded ones counted; later ones are new text."""

    def measured(self, raw: int, used: int, rounds: int, *, appended: bool) -> "Calibration":
        """After a reply: the request was ``raw`` by our count and ``used`` by the provider's.

        ``appended``: it was the last measured request with text added and nothing else changed.
        A usage of nothing leaves everything as it was.
        """
        if raw <= 0 or used <= 0:
            return self
        delta = self.k_delta
        if appended and raw - self.raw >= DELTA_TOKENS_MIN:
            delta = _bounded((used - self.used) / (raw - self.raw))
        return Calibration(_bounded(used / raw), delta, raw, used, rounds)

    def tokens(self, raw: int, fresh: int, k0: float) -> int:
        """What a request will cost: ``raw`` in all by our count, of which ``fresh`` is new text.

        ``k0`` counts before anything is known. New text is taken at the worse of both ratios.
        """
        k = self.k or k0
        return math.ceil(k * raw + (max(k, self.k_delta) - k) * fresh)

    def raw_budget(self, budget: int, fresh: int, k0: float) -> int:
        """The other way round: our count of the largest request that stays within the budget."""
        k = self.k or k0
        return math.floor((budget - (max(k, self.k_delta) - k) * fresh) / k)


def _bounded(k: float) -> float:
    return min(max(k, K_MIN), K_MAX)
