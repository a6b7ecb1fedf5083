"""The sampler of every plugin: exact support, right frequencies, and what a draw depends on."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.kernel import SampleBatch
from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.cpu import CpuKernels
from jackfield.plugins.kernels.torch_ops import TorchKernels

Ops = Mapping[str, Any]
DRAWS = 100_000
Setting = tuple[float, int, float, float]
SETTINGS: list[Setting] = [
    (1.0, 0, 1.0, 0.0),
    (0.7, 0, 1.0, 0.0),
    (1.0, 5, 1.0, 0.0),
    (1.0, 0, 0.8, 0.0),
    (1.0, 0, 1.0, 0.1),
    (1.5, 8, 0.7, 0.05),
]


def settings(rows: list[Setting], seed: int = 0) -> SampleBatch:
    temperature, top_k, top_p, min_p = zip(*rows, strict=True)
    index = torch.arange(len(rows))
    return SampleBatch(
        torch.tensor(temperature),
        torch.tensor(top_k, dtype=torch.int32),
        torch.tensor(top_p),
        torch.tensor(min_p),
        index + seed,
        index * 3,
        all(value == 0 for value in temperature),
        any(row[0] > 0 and row[1:] != (0, 1.0, 0.0) for row in rows),
    )


def expected(logits: Tensor, setting: Setting) -> Tensor:
    """The distribution by its definition, in float64, token by token."""
    temperature, top_k, top_p, min_p = setting
    p = (logits.double() / temperature).softmax(-1)
    p = torch.where(p < min_p * p.max(), 0, p)
    order = sorted(range(len(p)), key=lambda i: (-float(logits[i]), i))
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    mass = 0.0
    for token in order:
        if mass >= top_p:
            p[token] = 0
        mass += float(p[token])
    return p / p.sum()


def draw(operations: Ops, logits: Tensor, setting: Setting, count: int = DRAWS) -> Tensor:
    batch = settings([setting] * count)
    tokens = operations["sample"](logits.repeat(count, 1), batch)
    assert tokens.dtype is torch.int64
    return torch.bincount(tokens, minlength=len(logits))


@pytest.mark.parametrize("setting", SETTINGS)
def test_frequencies(operations: Ops, setting: Setting) -> None:
    logits = torch.randn(24, generator=torch.Generator().manual_seed(7)) * 1.5
    counts, p = draw(operations, logits, setting), expected(logits, setting)
    assert torch.equal(counts > 0, p > 0)
    kept = p > 0
    statistic = ((counts - DRAWS * p)[kept].square() / (DRAWS * p[kept])).sum()
    freedom = torch.tensor((int(kept.sum()) - 1) / 2, dtype=torch.float64)
    assert torch.special.gammaincc(freedom, statistic / 2) > 1e-4


@pytest.mark.parametrize(
    "setting", [(1.0, 3, 1.0, 0.0), (1.0, 0, 0.55, 0.0), (1.0, 0, 1.0, 0.5), (1.0, 4, 0.6, 0.0)]
)
def test_ties_are_kept_by_lowest_id(operations: Ops, setting: Setting) -> None:
    logits = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, -0.0])
    counts = draw(operations, logits, setting, 3000)
    assert torch.equal(counts > 0, expected(logits, setting) > 0)


@pytest.mark.parametrize("top_k", [1, 40, 700, 3000])
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 30.0])
def test_support_in_a_large_vocabulary(operations: Ops, top_k: int, spread: float) -> None:
    logits = torch.randn(40_000).bfloat16().float() * spread
    order = torch.sort(logits, descending=True, stable=True).indices
    batch = settings([(50.0, top_k, 1.0, 0.0)] * 30)
    tokens = operations["sample"](logits.repeat(30, 1), batch)
    assert torch.isin(tokens, order[:top_k]).all()


@pytest.mark.parametrize("top_p", [1e-9, 0.0, 0.3, 0.95])
def test_nucleus_in_a_large_vocabulary(operations: Ops, top_p: float) -> None:
    logits = torch.randn(40_000) * 2
    p, order = logits.double().softmax(-1).sort(descending=True)
    size = max(1, int((p.cumsum(-1) - p < top_p).sum()))
    tokens = operations["sample"](logits.repeat(200, 1), settings([(1.0, 0, top_p, 0.0)] * 200))
    # Float32 sums may move the border by a few of the 40000 tokens.
    assert torch.isin(tokens, order[: max(1, int(size * 1.001))]).all()
    assert len(tokens.unique()) > min(size, 150) / 2


def test_impossible_tokens_are_never_drawn(operations: Ops) -> None:
    logits = torch.full((2000,), float("-inf"))
    logits[[3, 900, 1999]] = torch.tensor([0.0, 1.0, 0.5])
    for setting in [*SETTINGS, (1.0, 100, 1.0, 0.0), (1.0, 0, 0.999999, 0.0)]:
        tokens = operations["sample"](logits.repeat(300, 1), settings([setting] * 300))
        assert torch.isin(tokens, torch.tensor([3, 900, 1999])).all()


def test_greedy_takes_the_lowest_of_equals(operations: Ops) -> None:
    logits = torch.randn(4, 3001)
    logits[0, [5, 2900]] = 9.0
    logits[1, [256, 257]] = 9.0
    logits[2] = -1.0
    logits[3, 3000] = 9.0
    assert operations["sample"](logits, settings([(0.0, 0, 1.0, 0.0)] * 4)).tolist() == [
        5,
        256,
        0,
        3000,
    ]


def test_greedy_rows_among_others(operations: Ops) -> None:
    logits = torch.randn(6, 500)
    highest = logits.argmax(-1)
    rows: list[Setting] = [(0.0, 3, 0.5, 0.1), (1.0, 0, 1.0, 0.0), (1.0, 5, 0.9, 0.0)] * 2
    tokens = operations["sample"](logits.clone(), settings(rows))
    assert tokens[[0, 3]].tolist() == highest[[0, 3]].tolist()


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 1e30])
def test_extreme_temperatures(operations: Ops, temperature: float) -> None:
    logits = torch.randn(50, 1000)
    highest = logits.argmax(-1)
    tokens = operations["sample"](logits, settings([(temperature, 0, 1.0, 0.0)] * 50))
    assert torch.equal(tokens, highest) == (temperature < 1)


@pytest.mark.parametrize("setting", [*SETTINGS, (0.9, 0, 0.98, 0.0), (0.9, 700, 1.0, 0.0)])
def test_a_row_does_not_depend_on_the_batch(operations: Ops, setting: Setting) -> None:
    rows: list[Setting] = [
        setting,
        *SETTINGS,
        (0.0, 0, 1.0, 0.0),
        (1.0, 2500, 1.0, 0.0),
        (1.0, 0, 0.999, 0.0),
    ]
    logits = torch.randn(len(rows), 5000).bfloat16().float()
    sample = operations["sample"]
    for seed in range(5):
        batch = settings(rows, seed)
        together = sample(logits.clone(), batch)
        fields = [column[:1] for column in batch[:-2]]
        alone = sample(logits[:1].clone(), SampleBatch(*fields, *batch[-2:]))
        assert alone[0] == together[0]


def test_seed_and_position_decide(operations: Ops) -> None:
    logits = torch.randn(1, 5000).repeat(400, 1)
    batch = settings([(1.0, 0, 1.0, 0.0)] * 400)
    sample = operations["sample"]
    first = sample(logits.clone(), batch)
    assert torch.equal(first, sample(logits.clone(), batch))
    moved = batch._replace(positions_R=batch.positions_R + 1)
    assert (first != sample(logits.clone(), moved)).float().mean() > 0.9
    reseeded = batch._replace(seeds_R=batch.seeds_R - 2**62)
    assert (first != sample(logits.clone(), reseeded)).float().mean() > 0.9


def test_plugins_draw_the_same_tokens() -> None:
    plugins = [TorchKernels(PolicyConfig()), CpuKernels(PolicyConfig())]
    ours, theirs = (plugin.operations()["sample"] for plugin in plugins)
    if theirs.unsupported(None, torch.device("cpu")):
        pytest.skip("no C compiler")
    logits = torch.randn(600, 3000) * 2
    for setting in SETTINGS:
        batch = settings([setting] * 600, seed=-5)
        same = ours(logits.clone(), batch) == theirs(logits.clone(), batch)
        assert same.float().mean() > 0.99


def test_threads_do_not_change_a_draw(operations: Ops) -> None:
    logits = torch.randn(12, 9000)
    batch = settings([*SETTINGS, *SETTINGS])
    alone = operations["sample"](logits.clone(), batch)
    torch.set_num_threads(3)
    assert torch.equal(operations["sample"](logits.clone(), batch), alone)


def test_logits_of_a_strided_view(operations: Ops) -> None:
    logits = torch.randn(9, 700)
    for setting in ((0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (1.0, 9, 0.9, 0.0)):
        batch = settings([setting] * 3)
        dense = operations["sample"](logits[::4, :600].contiguous(), batch)
        assert torch.equal(operations["sample"](logits.clone()[::4, :600], batch), dense)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_token_whose_logit_is_no_number_is_marked(operations: Ops, temperature: float) -> None:
    logits = torch.randn(3, 600)
    logits[1] = torch.nan
    batch = settings([(temperature, 0, 1.0, 0.0)] * 3)
    tokens = operations["sample"](logits, batch).tolist()
    assert tokens[0] >= 0 and tokens[2] >= 0
    assert -600 <= tokens[1] < 0
