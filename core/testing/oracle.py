"""What the fake executor answers, computed without an engine."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jackfield.core.api import FinishReason
from jackfield.core.testing.fake_executor import hashed


@dataclass(frozen=True, slots=True)
class Question:
    """One answer that is expected. seed: 0 for a greedy one."""

    prompt: Sequence[int]
    max_tokens: int
    vocab_size: int
    seed: int = 0
    ends: Collection[int] = ()
    min_tokens: int = 0
    banned: Sequence[Sequence[int]] = ()


def expected(question: Question) -> tuple[list[int], FinishReason]:
    """All tokens of the answer and why it ends."""
    answer: list[int] = []
    while len(answer) < question.max_tokens:
        answer.append(_next(question, answer))
        if answer[-1] in question.ends and len(answer) >= question.min_tokens:
            return answer, FinishReason.STOP
    return answer, FinishReason.LENGTH


def _next(question: Question, answer: Sequence[int]) -> int:
    token = hashed([*question.prompt, *answer], question.seed, question.vocab_size)
    while any(_completes(sequence, answer, token) for sequence in question.banned):
        token = (token + 1) % question.vocab_size
    return token


def _completes(sequence: Sequence[int], answer: Sequence[int], token: int) -> bool:
    end = [*answer, token][-len(sequence) :]
    return list(sequence) == end
