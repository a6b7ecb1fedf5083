"""What the engine knows of its own speed."""

from typing import Final, Protocol


class Predictor(Protocol):
    """How long steps take, fitted to the steps that this engine has run.

    Measuring starts with the first question; until enough steps were seen the answer is None. An
    answer is about the mean: expect errors of some percent, more for steps unlike those seen.
    """

    def step_seconds(
        self, decodes: int, context_tokens: int, prefill_tokens: int
    ) -> float | None:
        """Seconds of a step: decodes, positions that they attend to, prompt positions."""

    def tokens_within(
        self, seconds: float, decodes: int, context_tokens: int
    ) -> int | None:
        """The most prompt positions beside these decodes for which a step takes no longer."""


class _NoPrediction:
    """Knows nothing."""

    def step_seconds(
        self, decodes: int, context_tokens: int, prefill_tokens: int
    ) -> float | None:
        return None

    def tokens_within(
        self, seconds: float, decodes: int, context_tokens: int
    ) -> int | None:
        return None


NO_PREDICTION: Final[Predictor] = _NoPrediction()
