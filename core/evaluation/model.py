"""Two models of one vocabulary on the same texts: what quantizing, or another type, costs."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from torch import Tensor

from jackfield.core.api import ConfigError
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.evaluation.agreement import Agreement, Memory, Surprise
from jackfield.core.evaluation.documents import Question, windows
from jackfield.core.evaluation.kv import PIECE, release
from jackfield.core.evaluation.reading import Reading, read
from jackfield.core.evaluation.sequence import PagedSequence
from jackfield.core.evaluation.subject import Subject, require_comparable
from jackfield.core.evaluation.task import Answered, TaskScore, answer
from jackfield.core.llm import LLM

WINDOW = 2048
KEPT_BYTES = 4 * 2**30
"""Of the reference's logits, on disk, unless more tokens are asked for."""
FLOAT32_BYTES = 4
TAIL = 0.99
PRODUCTS = ("linear", "quant_matmul")


class Material(NamedTuple):
    """What both read and answer. tokens: of all documents together; None = what `KEPT_BYTES` of
    logits hold. max_tokens: of an answer."""

    documents: Sequence[str]
    tokens: int | None = None
    questions: Sequence[Question] = ()
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class ModelSide:
    """One model. weights: how they are stored. dtype: what it computes in. kernels: who serves its
    products. perplexity: of the texts."""

    model: str
    architecture: str
    weights: str
    dtype: str
    kernels: list[str]
    perplexity: float
    task: TaskScore | None
    notices: list[str]


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """kl: KL(reference||model) in nats per token; p99 is exceeded at one position of a hundred.
    top1_agreement: share of positions with the same most likely token. tokens: that were read, in
    windows that were each read by itself. compared: positions that have a next token."""

    model: ModelSide
    reference: ModelSide
    tokens: int
    windows: int
    compared: int
    mean_kl: float
    p99_kl: float
    top1_agreement: float
    max_logprob_difference: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class _Windows(NamedTuple):
    """Stretches of tokens that are each read by itself."""

    tokens: list[Sequence[int]]

    @property
    def total(self) -> int:
        return sum(map(len, self.tokens))

    @property
    def starts(self) -> list[int]:
        """Where the logits of each begin among those of all."""
        return [0, *accumulate(map(len, self.tokens))][:-1]

    @property
    def longest(self) -> int:
        return max(map(len, self.tokens))


class _Result(NamedTuple):
    """What is left of a model when it is gone."""

    facts: dict[str, Any]
    answered: Answered | None


OnLogits = Callable[[int, int, Tensor], None]
"""Index of a window, position in it, logits from there on."""


def compare_models(
    model: Subject, reference: Subject, material: Material, progress: Progress
) -> ModelComparison:
    """Load the reference, let it read and answer, then the same with the model.

    One of them is in memory at a time. Of the reference all logits are kept, in float32, in a file
    in the folder for temporary files: 4 bytes for each token and entry of the vocabulary. Raises
    `ConfigError` if the two cannot be compared, or if what is to be read has no room.
    """
    require_comparable(model, reference, material.documents)
    most = _most_tokens(material, reference.spec.vocab_size)
    agreement = Agreement()
    with _loaded(reference, progress) as llm:
        sequence = PagedSequence(llm.assembly)
        cut = _cut(reference, material.documents, min(sequence.capacity, WINDOW), most)
        memory = Memory(cut.total, reference.spec.vocab_size)
        starts = cut.starts
        kept = _run(
            llm, sequence, cut, material, "The reference reads", progress,
            lambda index, at, logits_TV: memory.put(starts[index] + at, logits_TV),
        )  # fmt: skip
    with closing(memory):
        release()

        def compare(index: int, at: int, logits_TV: Tensor) -> None:
            if at == 0:
                agreement.begin(cut.tokens[index])
            kept_TV = memory.get(starts[index] + at, len(logits_TV))
            agreement.add(at, kept_TV, logits_TV.float().cpu())

        with _loaded(model, progress) as llm:
            sequence = PagedSequence(llm.assembly)
            _require_room(sequence, cut)
            found = _run(llm, sequence, cut, material, "The model reads", progress, compare)
    return _comparison((model, found), (reference, kept), agreement, cut)


def _loaded(subject: Subject, progress: Progress) -> LLM:
    return LLM(config=subject.resolved, progress=progress)


def _most_tokens(material: Material, vocab_size: int) -> int:
    row = FLOAT32_BYTES * vocab_size
    if material.tokens is None:
        return max(KEPT_BYTES // row, 2)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if material.tokens * row > free:
        raise ConfigError(
            f"the logits of {material.tokens} tokens need {material.tokens * row:,} bytes in "
            f"{tempfile.gettempdir()}, which has {free:,} free; ask for fewer tokens, or set "
            f"TMPDIR to a folder that has room"
        )
    return material.tokens


def _cut(subject: Subject, documents: Sequence[str], size: int, most: int) -> _Windows:
    """The first tokens of all documents, so many at most."""
    found: list[Sequence[int]] = []
    left = most
    for text in documents:
        tokens = subject.tokenizer.encode(text)[:left]
        pieces = list(windows(tokens, size))
        found += pieces
        left -= sum(map(len, pieces))
    if not found:
        raise ConfigError("the text has fewer than two tokens, so that nothing can be predicted")
    return _Windows(found)


def _require_room(sequence: PagedSequence, cut: _Windows) -> None:
    if sequence.capacity < cut.longest:
        raise ConfigError(
            f"the model holds {sequence.capacity} tokens, but the reference read {cut.longest} at "
            f"once; raise cache.num_blocks or cache.memory, or ask for fewer tokens"
        )


def _run(
    llm: LLM,
    sequence: PagedSequence,
    cut: _Windows,
    material: Material,
    label: str,
    progress: Progress,
    on_logits: OnLogits,
) -> _Result:
    config = llm.assembly.resolved.config
    piece = min(PIECE, config.engine.max_num_batched_tokens or PIECE)
    progress.start(label, cut.total)
    try:
        for index, window in enumerate(cut.tokens):
            sequence.restart()
            read(sequence, Reading(window, piece, 0), partial(on_logits, index), progress)
    finally:
        progress.finish()
    questions, most = material.questions, material.max_tokens
    answered = answer(llm, questions, most) if questions else None
    return _Result(_facts(llm), answered)


def _facts(llm: LLM) -> dict[str, Any]:
    summary = llm.assembly.summary
    kernels = [summary.operations[name] for name in PRODUCTS if name in summary.operations]
    return {
        "model": summary.model,
        "architecture": summary.architecture,
        "dtype": summary.dtype,
        "kernels": list(dict.fromkeys(kernels)),
        "notices": summary.notices,
    }


def _comparison(
    model: tuple[Subject, _Result],
    reference: tuple[Subject, _Result],
    agreement: Agreement,
    cut: _Windows,
) -> ModelComparison:
    answered = model[1].answered, reference[1].answered
    return ModelComparison(
        model=_side(*model, agreement.b, answered[1]),
        reference=_side(*reference, agreement.a, answered[0]),
        tokens=cut.total,
        windows=len(cut.tokens),
        compared=agreement.count,
        mean_kl=agreement.mean_divergence,
        p99_kl=agreement.divergence_at(TAIL),
        top1_agreement=agreement.same_top,
        max_logprob_difference=agreement.largest_difference,
    )


def _side(
    subject: Subject, result: _Result, surprise: Surprise, other: Answered | None
) -> ModelSide:
    mine = result.answered
    return ModelSide(
        **result.facts,
        weights=subject.quantization or "plain",
        perplexity=surprise.perplexity,
        task=mine.beside(other) if mine and other else None,
    )
