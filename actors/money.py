"""Money and tokens as integers: sums that come out the same in memory and on replay."""

import msgspec

NUSD_PER_USD = 1_000_000_000


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one reply; ``estimated`` when the provider did not say and we counted ourselves."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    estimated: bool = False


class Prices(msgspec.Struct, frozen=True):
    """Prices in 1e-12 USD per token, which is USD per million tokens times a million."""

    input: int
    cached_input: int
    output: int

    def cost(self, usage: Usage) -> int:
        """What a reply costs, in 1e-9 USD, rounded up."""
        fresh = usage.input_tokens - usage.cached_input_tokens
        pico = (
            fresh * self.input
            + usage.cached_input_tokens * self.cached_input
            + usage.output_tokens * self.output
        )
        return -(-pico // 1000)

    def worst(self, input_tokens: int, output_tokens: int) -> int:
        """The most that a turn of this size may cost, in 1e-9 USD."""
        return self.cost(Usage(input_tokens, output_tokens))

    def output_tokens_for(self, nusd: int) -> int:
        """How many output tokens an amount pays for."""
        return max(0, nusd) * 1000 // self.output if self.output else 2**31


FREE = Prices(0, 0, 0)


def usd(nusd: int) -> float:
    """An amount in USD, for people and JSON."""
    return nusd / NUSD_PER_USD


def nusd(amount_usd: float) -> int:
    """An amount in 1e-9 USD, for everything that adds up."""
    return round(amount_usd * NUSD_PER_USD)
