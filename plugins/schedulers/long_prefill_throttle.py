"""Long prompts leave a part of each step to short ones."""

from pydantic import Field

from jackfield.core.api import PolicyConfig, PolicyContext, Quota, QuotaView, hookimpl


class LongPrefillThrottleConfig(PolicyConfig):
    """threshold: a prompt with more tokens left than this is long. share: what all long prompts
    get together of a step's prompt tokens, at least.
    """

    threshold: int = Field(512, ge=1)
    share: float = Field(0.5, gt=0, le=1)


class LongPrefillThrottle:
    """Gives long prompts their share of each step and, of the rest, what nobody else wants.

    Others are short prompts that are under way, and all who wait, if the next of them could be
    admitted. For these the core admits when the limits below leave room in the step.

    Guarantee: a long prompt takes at most 1 / share times the steps that it takes alone; alone it
    is not slowed. Short prompts of n tokens in all behind it are computed within
    ceil(n / ((1 - share) * tokens of a step)) + 1 steps, if seats and blocks are free.

    Source: processor sharing, Kleinrock, Time-shared Systems: a Theoretical Treatment, Journal of
    the ACM 14(2), 1967, with two classes and the step as the unit of time.
    """

    Config = LongPrefillThrottleConfig

    def __init__(self, config: LongPrefillThrottleConfig, context: PolicyContext) -> None:
        self._threshold = config.threshold
        self._share = config.share

    @hookimpl
    def quota(self, plan: QuotaView) -> Quota:
        threshold = self._threshold
        long = [prompt for prompt in plan.prefills if prompt.need > threshold]
        if not long:
            return {}
        others = sum(prompt.need for prompt in plan.prefills if prompt.need <= threshold)
        left = plan.tokens - others - plan.waiting_tokens
        left = max(left, int(self._share * plan.tokens), 1)
        limits = {}
        for prompt in long:
            limits[prompt.request.handle] = min(prompt.need, left)
            left -= limits[prompt.request.handle]
        return limits
