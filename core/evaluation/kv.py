"""Two configurations of one model on one text: what another KV cache costs in accuracy."""

import gc
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import ConfigError
from jackfield.core.assemble import Assembly, assemble
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.evaluation.agreement import Agreement, Memory
from jackfield.core.evaluation.reading import Reading, read
from jackfield.core.evaluation.sequence import PagedSequence
from jackfield.core.host.sources import Resolved

DEFAULT_TEXT = Path(__file__).with_name("default_text.txt")
PIECE = 64
FURTHER = 64
FEWEST = 2
KEYS = ("model.name", "model.tokenizer", "model.architecture", "model.load_format", "model.seed")


class Text(NamedTuple):
    """content: None = the built-in text. tokens: how many of it; None = all that fit."""

    content: str | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One configuration. kernel: the plugin that served attention."""

    encoding: str
    kernel: str
    bytes_per_token: int
    notices: list[str]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first greedy token that differs. index: after the text, from 0."""

    index: int
    token_a: int
    token_b: int
    text_a: str
    text_b: str


@dataclass(frozen=True, slots=True)
class KvComparison:
    """mean_kl: KL(A||B) in nats per token. top1_agreement: share of positions with the same most
    likely token. max_logprob_difference: of a token of the text. greedy_tokens: how many were
    compared after the text."""

    model: str
    tokens: int
    piece: int
    greedy_tokens: int
    a: Side
    b: Side
    perplexity_a: float
    perplexity_b: float
    mean_kl: float
    top1_agreement: float
    max_logprob_difference: float
    divergence: Divergence | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class _First(NamedTuple):
    """What is kept of A when its model is gone."""

    side: Side
    reading: Reading
    logits: Memory
    answer: list[int]
    model: str


def compare_kv(a: Resolved, b: Resolved, text: Text, progress: Progress) -> KvComparison:
    """Load A, let it read the text, then the same with B, and compare position by position.

    The text goes through the paged cache in pieces, so that most of what attention reads was
    stored before; then each configuration goes on greedily by itself, token by token. One model is
    in memory at a time. Raises `ConfigError` if the two are not the same model, or if the text
    does not fit, and what loading raises.
    """
    _require_same_model(a, b, progress)
    first = _read_first(assemble(a, progress), _piece(a, b), text, progress)
    with closing(first.logits):
        release()
        return _compare(first, assemble(b, progress), progress)


def _require_same_model(a: Resolved, b: Resolved, progress: Progress) -> None:
    for key, one, other in zip(KEYS, _identity(a, progress), _identity(b, progress), strict=True):
        if one != other:
            raise ConfigError(
                f"A and B have to be the same model, but {key} is {str(one)!r} in A and "
                f"{str(other)!r} in B; make them equal"
            )


def _identity(resolved: Resolved, progress: Progress) -> tuple[Any, ...]:
    model = resolved.config.model
    if model.skip_tokenizer_init:
        raise ConfigError("a text needs the tokenizer; set model.skip_tokenizer_init to false")
    path = resolve_model(model.name, revision=model.revision, progress=progress)
    tokenizer = Path(model.tokenizer or path).expanduser()
    return path.resolve(), tokenizer.resolve(), model.architecture, model.load_format, model.seed


def _piece(a: Resolved, b: Resolved) -> int:
    limits = (one.config.engine.max_num_batched_tokens for one in (a, b))
    return min(PIECE, *(limit or PIECE for limit in limits))


def _read_first(assembly: Assembly, piece: int, text: Text, progress: Progress) -> _First:
    with closing(assembly.engine):
        sequence = PagedSequence(assembly)
        further = min(FURTHER, sequence.capacity // 4)
        reading = Reading(_tokens(assembly, text, sequence.capacity - further), piece, further)
        logits = Memory(len(reading.tokens), assembly.spec.vocab_size)
        answer = _read(sequence, reading, logits.put, "A reads the text", progress)
        return _First(_side(assembly), reading, logits, answer, assembly.summary.model)


def _tokens(assembly: Assembly, text: Text, room: int) -> list[int]:
    assert assembly.tokenizer is not None, "checked before anything was loaded"
    content = DEFAULT_TEXT.read_text("utf-8") if text.content is None else text.content
    tokens = assembly.tokenizer.encode(content)
    wanted = min(len(tokens), room) if text.tokens is None else text.tokens
    if wanted > room:
        raise ConfigError(
            f"{wanted} tokens are asked for, but the context and the KV pool of A leave room for "
            f"{room}; ask for fewer, or raise cache.num_blocks or cache.memory"
        )
    if not FEWEST <= wanted <= len(tokens):
        raise ConfigError(
            f"the text has {len(tokens)} tokens, {wanted} of them are compared; take at least "
            f"{FEWEST}, and no more than there are"
        )
    return tokens[:wanted]


def _read(
    sequence: PagedSequence,
    reading: Reading,
    on_logits: Callable[[int, Tensor], None],
    label: str,
    progress: Progress,
) -> list[int]:
    progress.start(label, len(reading.tokens) + reading.further)
    try:
        return read(sequence, reading, on_logits, progress)
    finally:
        progress.finish()


def _side(assembly: Assembly) -> Side:
    summary = assembly.summary
    kernel = summary.operations["attention"]
    return Side(
        summary.kv_encoding, kernel, summary.kv_bytes_per_token, list(assembly.loaded.notices)
    )


def _compare(first: _First, assembly: Assembly, progress: Progress) -> KvComparison:
    with closing(assembly.engine):
        sequence, reading = PagedSequence(assembly), first.reading
        length = len(reading.tokens) + reading.further
        if sequence.capacity < length:
            raise ConfigError(
                f"B holds {sequence.capacity} tokens, but A read and wrote {length}; ask for "
                f"fewer, or raise cache.num_blocks or cache.memory"
            )
        agreement = Agreement(reading.tokens)

        def add(start: int, logits_TV: Tensor) -> None:
            kept_TV = first.logits.get(start, len(logits_TV))
            agreement.add(start, kept_TV, logits_TV.float().cpu())

        answer = _read(sequence, reading, add, "B reads the text", progress)
        divergence = _divergence(assembly, first.answer, answer)
        return KvComparison(
            model=first.model,
            tokens=len(reading.tokens),
            piece=reading.piece,
            greedy_tokens=reading.further,
            a=first.side,
            b=_side(assembly),
            perplexity_a=agreement.a.perplexity,
            perplexity_b=agreement.b.perplexity,
            mean_kl=agreement.mean_divergence,
            top1_agreement=agreement.same_top,
            max_logprob_difference=agreement.largest_difference,
            divergence=divergence,
        )


def _divergence(assembly: Assembly, a: Sequence[int], b: Sequence[int]) -> Divergence | None:
    tokenizer = assembly.tokenizer
    assert tokenizer is not None, "checked before anything was loaded"
    for index, (one, other) in enumerate(zip(a, b, strict=True)):
        if one != other:
            texts = (tokenizer.decode([token]) for token in (one, other))
            return Divergence(index, one, other, *texts)
    return None


def release() -> None:
    """The second model is sized by what is free when the first is gone."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
