"""Chunks of prompts that keep running answers flowing at a wanted pace."""

from pydantic import Field, PositiveFloat

from jackfield.core.api import PolicyConfig, PolicyContext, Shape, StepView, hookimpl


class ChunkedPrefillConfig(PolicyConfig):
    """inter_token: seconds that a step should take at most while answers are running.

    first: prompt tokens of such a step until the engine knows how long its steps take. least:
    prompt tokens that it always has, so that prompts never stand still.
    """

    inter_token: PositiveFloat = 0.05
    first: int = Field(256, ge=1)
    least: int = Field(16, ge=1)


class ChunkedPrefill:
    """Limits the prompt tokens of a step so that it is predicted to end in time.

    The prediction is the engine's own, fitted to its steps. From one step to the next a chunk at
    most doubles, so that a prediction for steps unlike those seen is tried out in small steps.

    Guarantee: steps with running answers take no longer than `inter_token`, as far as predictions
    go and the answers alone leave room for `least`; a step without any is not limited.

    Source: Agrawal et al., Taming Throughput-Latency Tradeoff in LLM Inference with
    Sarathi-Serve, OSDI 2024 (stall-free schedules with a token budget).
    """

    Config = ChunkedPrefillConfig

    def __init__(self, config: ChunkedPrefillConfig, context: PolicyContext) -> None:
        self._config = config
        self._predict = context.predict
        self._last = config.first

    @hookimpl
    def shape(self, step: StepView) -> Shape:
        if not step.decodes:
            return Shape()
        config = self._config
        tokens = self._predict.tokens_within(
            config.inter_token, step.decodes, step.context_tokens
        )
        wanted = config.first if tokens is None else min(tokens, 2 * self._last)
        self._last = max(wanted, config.least)
        return Shape(prefill_tokens=self._last)
