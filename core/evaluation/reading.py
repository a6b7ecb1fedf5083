"""A model reads a text and goes on by itself, through the KV cache of its configuration.

Shape suffixes: T tokens of a piece, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from jackfield.core.checkpoint.progress import Progress
from jackfield.core.evaluation.sequence import PagedSequence


class Reading(NamedTuple):
    """What is read: the tokens, how many at a time, and how many greedy ones follow."""

    tokens: Sequence[int]
    piece: int
    further: int


def read(
    sequence: PagedSequence,
    reading: Reading,
    on_logits: Callable[[int, Tensor], None],
    progress: Progress,
) -> list[int]:
    """The greedy tokens after the text.

    on_logits: called with the position of each piece and its logits `[T, V]`, float32.
    """
    tokens = reading.tokens
    logits_TV = None
    for start in range(0, len(tokens), reading.piece):
        piece = tokens[start : start + reading.piece]
        logits_TV = sequence.feed(piece, tokens)
        on_logits(start, logits_TV)
        progress.advance(len(piece))
    assert logits_TV is not None, "there is no text"
    return _go_on(sequence, int(logits_TV[-1].argmax()), reading.further, progress)


def _go_on(sequence: PagedSequence, first: int, count: int, progress: Progress) -> list[int]:
    answer = [first][:count]
    while len(answer) < count:
        answer.append(int(sequence.feed(answer[-1:])[-1].argmax()))
        progress.advance(1)
    return answer
