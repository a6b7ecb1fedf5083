"""The largest steps that the limits allow, for measuring what they take.

Their content means nothing. Blocks appear in several tables, and several times in one.
"""

from itertools import cycle, islice

from jackfield.core.api import SamplingParams
from jackfield.core.api.sampling import MAX_LOGPROBS
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.prompt_scores import SCORE_ROWS
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan

EVERYTHING = SamplingParams(
    temperature=1.0, top_p=0.9, top_k=50, min_p=0.01, presence_penalty=0.1, frequency_penalty=0.1,
    repetition_penalty=1.1, logprobs=MAX_LOGPROBS, prompt_logprobs=MAX_LOGPROBS,
)  # fmt: skip
"""All that makes sampling take memory."""


def blocks_needed(limits: Limits, block_size: int) -> int:
    """Blocks of the small pool that the steps run on: those of the longest prompt's part."""
    return -(-min(limits.max_tokens, limits.max_model_len) // block_size)


def largest_steps(limits: Limits, block_size: int, num_blocks: int) -> list[StepPlan]:
    """In the order in which they must run: prompts on all seats that fill the step, the last
    position of every seat, and as much as a step may hold of the longest prompt, its end."""
    seats, context = range(limits.max_seqs), limits.max_model_len
    length = min(limits.max_tokens, context)
    start = context - length
    blocks = list(islice(cycle(range(num_blocks)), -(-context // block_size)))
    first = StepPlan(0, [_prompt(seat, 0, _share(limits, seat)) for seat in seats])
    # Positions that are scored go through the model's head in pieces; one piece tells all.
    scored = (0,) * (start + SCORE_ROWS + 1)
    first.joins = [_join(seat, scored if seat == 0 else (0,)) for seat in seats]
    first.blocks = [BlockUpdate(seat, 0, blocks) for seat in seats]
    decodes = [Slice(seat, seat, context - 1, 1, None, 1, False) for seat in seats]
    longest = _prompt(0, start, length)._replace(scores=True)
    return [first, StepPlan(1, decodes, limits.max_seqs), StepPlan(2, [longest])]


def _share(limits: Limits, seat: int) -> int:
    share, rest = divmod(limits.max_tokens, limits.max_seqs)
    return min(share + (seat < rest), limits.max_model_len)


def _prompt(seat: int, start: int, length: int) -> Slice:
    return Slice(seat, seat, start, length, [0] * length, 1, False)


def _join(seat: int, prompt: tuple[int, ...]) -> Join:
    return Join(seat, seat, EVERYTHING, seat, prompt, (), frozenset(), ())
