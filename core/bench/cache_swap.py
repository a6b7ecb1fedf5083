"""Conversations that do not fit: what a tier below the pool saves."""

from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from jackfield.core.api import EngineStoppedError, FinishReason, SamplingParams
from jackfield.core.bench.cache_pair import (
    Configure,
    Stacks,
    check_numbers,
    computed,
    open_pair,
    saved,
    tokens_for,
)
from jackfield.core.bench.provenance import provenance
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.engine.messages import NewRequest
from jackfield.core.front.prompt_keys import prompt_keys
from jackfield.core.llm import LLM

STACKS = Stacks(("paged", "prefix"), ("paged", "prefix", "swap"))
BLOCK_SIZE = 16
TIER_BYTES = "2GiB"


class SwapWork(NamedTuple):
    """Conversations of several turns, all of which go on at the same time.

    Each begins with a long message; a turn is what was said so far, a further message and the
    answer, and begins when the answer before has ended. Answers have half of `answer_tokens` to
    one and a half times as many, so that some conversations come back while others decode. The
    pool holds a `share` of what all of them have said at the end: with a half, they preempt each
    other, and what they come back to has been given up meanwhile.
    """

    conversations: int = 16
    turns: int = 3
    first_tokens: int = 256
    message_tokens: int = 64
    answer_tokens: int = 64
    share: float = 0.5
    rounds: int = 3

    @property
    def most_blocks(self) -> int:
        """Of one conversation, at its end."""
        longest = self.first_tokens + (self.turns - 1) * self.message_tokens
        return -(-(longest + self.turns * self.answer_tokens * 3 // 2) // BLOCK_SIZE)

    @property
    def all_blocks(self) -> int:
        """Of all conversations at their end, on average."""
        length = self.first_tokens + (self.turns - 1) * self.message_tokens
        length += self.turns * self.answer_tokens
        return self.conversations * -(-length // BLOCK_SIZE)

    @property
    def num_blocks(self) -> int:
        """Of the pool; at least one conversation fits, with room for another to begin."""
        return max(int(self.share * self.all_blocks), self.most_blocks + 2)


class Talk:
    """One conversation: its tokens so far, and what it has still to say."""

    def __init__(self, llm: LLM, work: SwapWork, random: Random) -> None:
        shortest, longest = (work.answer_tokens + 1) // 2, work.answer_tokens * 3 // 2
        self.lengths = [random.randint(shortest, longest) for _ in range(work.turns)]
        sizes = [work.first_tokens, *[work.message_tokens] * (work.turns - 1)]
        self._messages = [tokens_for(llm, random, size) for size in sizes]
        self.tokens: list[int] = []
        self.turn = -1
        self.needed = 0

    def next(self) -> bool:
        """The next message is said; False if the conversation is over.

        What a pool with room for everything would have to compute of it is added to `needed`.
        """
        self.turn += 1
        if self.turn == len(self.lengths):
            return False
        known = max(len(self.tokens) - 1, 0) // BLOCK_SIZE * BLOCK_SIZE
        self.tokens += self._messages[self.turn]
        self.needed += len(self.tokens) - known
        return True


class Played(NamedTuple):
    """All conversations on one engine. needed, again: tokens of prompts that had to be computed,
    and those beyond."""

    seconds: float
    outputs: int
    needed: int
    again: int
    preemptions: int
    loaded: int
    stored: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Pairs are (without, with), medians of the rounds. recomputed: tokens beyond those that a
    pool with room for everything would compute. rate: tokens of answers per second. loaded,
    stored: blocks from the tiers and to the first one, with them.
    """

    conversations: int
    turns: int
    num_blocks: int
    working_set_blocks: int
    rounds: int
    needed: int
    recomputed: tuple[int, int]
    recomputed_saved: float
    rate: tuple[float, float]
    rate_change: float
    preemptions: tuple[int, int]
    loaded: int
    stored: int
    where: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_swap(configure: Configure, work: SwapWork, progress: Progress) -> Swap:
    """Both engines have the same conversations in turn, new ones in each round.

    Raises `JackfieldError`s.
    """
    check_numbers("swap", {key: value for key, value in work._asdict().items() if key != "share"})
    settings = {
        "cache.num_blocks": work.num_blocks,
        "cache.paged.block_size": BLOCK_SIZE,
        "engine.max_num_seqs": work.conversations,
    }
    runs: tuple[list[Played], list[Played]] = ([], [])
    tier = {"cache.swap.memory": TIER_BYTES}

    def configured(more: Any) -> Any:
        return configure({**more, **(tier if "swap" in more["cache.stack"] else {})})

    with open_pair(configured, STACKS, settings, progress) as pair:
        progress.start("Conversations", 2 * work.rounds * work.conversations * work.turns)
        try:
            for number in range(work.rounds):
                for llm, found in zip(pair, runs, strict=True):
                    found.append(_play(llm, work, number, progress))
        finally:
            progress.finish()
        where = provenance(pair.with_it.assembly)
    return _result(work, runs, where)


def _play(llm: LLM, work: SwapWork, number: int, progress: Progress) -> Played:
    random, engine = Random(number), llm.assembly.engine
    llm.reset_prefix_cache()
    before, preempted, moved = computed(llm), engine.metrics.preemptions, _moved(llm)
    talks = {str(index): Talk(llm, work, random) for index in range(work.conversations)}
    started = perf_counter()
    _converse(llm, talks, progress)
    seconds = perf_counter() - started
    loaded, stored = (now - then for now, then in zip(_moved(llm), moved, strict=True))
    needed = sum(talk.needed for talk in talks.values())
    return Played(
        seconds=seconds,
        outputs=sum(sum(talk.lengths) for talk in talks.values()),
        needed=needed,
        again=max(computed(llm) - before - needed, 0),
        preemptions=engine.metrics.preemptions - preempted,
        loaded=loaded,
        stored=stored,
    )


def _converse(llm: LLM, talks: dict[str, Talk], progress: Progress) -> None:
    engine = llm.assembly.engine
    for name in talks:
        _say(llm, name, talks[name])
    while engine.has_work:
        llm.assembly.wait_if_idle()
        for delta in engine.step():
            talk = talks[delta.id]
            talk.tokens += delta.tokens
            if delta.finish is None:
                continue
            if delta.finish is not FinishReason.LENGTH:
                raise EngineStoppedError(f"an answer of the measurement failed: {delta.error}")
            progress.advance(1)
            _say(llm, delta.id, talk)


def _say(llm: LLM, name: str, talk: Talk) -> None:
    if talk.next():
        params = SamplingParams(
            temperature=0.0, ignore_eos=True, max_tokens=talk.lengths[talk.turn], detokenize=False
        )
        engine = llm.assembly.engine
        keys = prompt_keys(talk.tokens, engine.door_limits)
        engine.add(NewRequest(name, list(talk.tokens), params, keys=keys))


def _moved(llm: LLM) -> tuple[int, int]:
    metrics = llm.assembly.engine.cache_metrics
    return sum(metrics.loaded.values()), sum(metrics.stored.values())


def _result(work: SwapWork, runs: tuple[list[Played], list[Played]], where: dict[str, Any]) -> Swap:
    again = [round(median(one.again for one in run)) for run in runs]
    rates = [round(median(one.outputs / one.seconds for one in run), 2) for run in runs]
    preempted = [round(median(one.preemptions for one in run)) for run in runs]
    return Swap(
        conversations=work.conversations,
        turns=work.turns,
        num_blocks=work.num_blocks,
        working_set_blocks=work.all_blocks,
        rounds=work.rounds,
        needed=round(median(one.needed for one in runs[0])),
        recomputed=(again[0], again[1]),
        recomputed_saved=saved(again[0], again[1]),
        rate=(rates[0], rates[1]),
        rate_change=round(rates[1] / rates[0] - 1, 4),
        preemptions=(preempted[0], preempted[1]),
        loaded=round(median(one.loaded for one in runs[1])),
        stored=round(median(one.stored for one in runs[1])),
        where=where,
    )
