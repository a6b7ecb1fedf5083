"""Two engines that differ in their cache stack alone, measured in turn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, NamedTuple

from jackfield.core.api import ConfigError, EngineStoppedError, SamplingParams
from jackfield.core.bench.workloads import LARGEST_ID
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.front.outputs import RequestOutput
from jackfield.core.host.sources import Resolved
from jackfield.core.llm import LLM

Configure = Callable[[Mapping[str, Any]], Resolved]
"""The configuration of the user with these settings in addition."""


class Stacks(NamedTuple):
    """`cache.stack` without what is measured, and with it."""

    without: Sequence[str]
    with_it: Sequence[str]


class Pair(NamedTuple):
    """Both engines, with their own pools; a pause of one costs the other nothing."""

    without: LLM
    with_it: LLM


@contextmanager
def open_pair(
    configure: Configure, stacks: Stacks, settings: Mapping[str, Any], progress: Progress
) -> Iterator[Pair]:
    """Load both, with the same settings beside their stacks. Raises `JackfieldError`s."""
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                LLM(config=configure({**settings, "cache.stack": list(names)}), progress=progress)
            )
            for names in stacks
        ]
        yield Pair(*made)


def ask(llm: LLM, prompts: Sequence[list[int]], max_tokens: int) -> list[RequestOutput]:
    """Greedy answers of exactly that length, all at once. Raises `EngineStoppedError`."""
    params = SamplingParams(
        temperature=0.0, ignore_eos=True, max_tokens=max_tokens, detokenize=False
    )
    found = llm.generate(list(prompts), params, use_tqdm=False)
    for output in found:
        answer = output.outputs[0]
        if len(answer.token_ids) != max_tokens:
            reason = answer.error or f"it ended after {len(answer.token_ids)} of {max_tokens}"
            raise EngineStoppedError(f"a request of the measurement failed: {reason}")
    return found


def computed(llm: LLM) -> int:
    """Known positions that the engine has computed since its start, again or not."""
    return llm.assembly.engine.metrics.prompt_tokens


def tokens_for(llm: LLM, random: Random, count: int) -> list[int]:
    """Ids that the model knows."""
    largest = min(LARGEST_ID, llm.assembly.spec.vocab_size - 1)
    return [random.randint(0, largest) for _ in range(count)]


def check_numbers(what: str, numbers: Mapping[str, int], least: int = 1) -> None:
    """Raise `ConfigError` for a number that makes no workload."""
    for name, value in numbers.items():
        if value < least:
            raise ConfigError(f"{name} of {what} is {value}; it must be at least {least}")


def saved(without: float, with_it: float) -> float:
    """The share of the former that the latter does without."""
    return round(1 - with_it / without, 4) if without else 0.0
