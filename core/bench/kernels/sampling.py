"""Sampling: greedy, from all tokens, and from the likeliest."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from jackfield.core.api import SampleBatch
from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.subject import KernelSubject

SPREAD = 3.0


class Manner(NamedTuple):
    """As in `SampleBatch`, the same for all rows."""

    title: str
    temperature: float
    top_k: int = 0
    top_p: float = 1.0


MANNERS = (
    Manner("greedy", 0.0),
    Manner("temperature 0.8", 0.8),
    Manner("top_k 20, top_p 0.95", 0.8, 20, 0.95),
)


def sample_cases(subject: KernelSubject) -> Iterator[Case]:
    """Logits are in the model's type, and spread as far as those of a model that is not sure."""
    for manner in MANNERS:
        for rows in subject.sizes.rows:
            build = partial(_sample, subject, rows, manner)
            owner = subject.plain.owners["sample"]
            yield Case("sample", f"{rows}, {manner.title}", owner, build)


def _sample(subject: KernelSubject, rows: int, manner: Manner) -> Work:
    sample, vocabulary = subject.plain.operations.sample, subject.spec.vocab_size
    batch = sample_batch(rows, manner, subject.device)

    def make() -> Callable[[], object]:
        logits_RV = SPREAD * subject.random(rows, vocabulary)
        return lambda: sample(logits_RV, batch)

    size = rows * vocabulary * subject.dtype.itemsize
    return subject.work(make, size, capturable=sample.capturable(), bytes=size)


def sample_batch(rows: int, manner: Manner, device: torch.device) -> SampleBatch:
    """All rows in the same manner, each with a seed of its own."""

    def column(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((rows,), value, dtype=dtype, device=device)

    return SampleBatch(
        temperature_R=column(manner.temperature, torch.float32),
        top_k_R=column(manner.top_k, torch.int32),
        top_p_R=column(manner.top_p, torch.float32),
        min_p_R=column(0.0, torch.float32),
        seeds_R=torch.arange(rows, device=device),
        positions_R=column(100, torch.int64),
        all_greedy=manner.temperature == 0,
        filtered=manner.temperature > 0 and (manner.top_k > 0 or manner.top_p < 1),
    )
