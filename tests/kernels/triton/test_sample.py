"""Greedy and plain draws: the index is exact, the noise is right, and only few things decide."""

from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.kernel import OpSpec, SampleBatch
from jackfield.plugins.kernels.triton.sample import TritonSample

Setting = tuple[float, int, float, float]
# The interpreter makes scalars of arrays of one element.
pytestmark = [
    pytest.mark.few_combinations,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning"),
]
GREEDY: Setting = (0.0, 0, 1.0, 0.0)
PLAIN: Setting = (0.8, 0, 1.0, 0.0)
NAN, INF = float("nan"), float("inf")


def improbable(counts: Tensor, p: Tensor) -> bool:
    """By a chi-square test of the counts at 1e-4."""
    expected = counts.sum() * p
    statistic = ((counts - expected).square() / expected).sum()
    freedom = torch.tensor((len(p) - 1) / 2, dtype=torch.float64)
    return bool(torch.special.gammaincc(freedom, statistic / 2) < 1e-4)


def test_the_shipped_table_serves(
    sampling: Any, config: Any, device: torch.device, dtype: torch.dtype
) -> None:
    sample = TritonSample(config)
    assert sample.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert sample.capturable()
    logits = torch.randn(3, 300).to(dtype)
    assert torch.equal(sample(logits, sampling.settings([GREEDY] * 3)), logits.float().argmax(-1))
    mixed = sample(logits, sampling.settings([GREEDY, PLAIN, (1.0, 5, 0.9, 0.0)]))
    assert mixed[0] == logits[0].float().argmax()
    assert mixed[2] in logits[2].float().topk(5).indices


@pytest.mark.parametrize("vocabulary", [1, 50, 257, 1000])
def test_greedy_takes_the_lowest_of_equals(
    sampling: Any, config: Any, dtype: torch.dtype, vocabulary: int
) -> None:
    logits = torch.randint(-3, 4, (3, vocabulary)).to(dtype)
    logits[1] = -logits[1].abs()
    logits[1, vocabulary // 2 :: 2] = 0.0
    logits[1, ::3] = -0.0
    logits[2, vocabulary - 1] = 9.0
    tokens = sampling.sampler(config)(logits, sampling.settings([GREEDY] * 3))
    assert tokens.dtype is torch.int64
    wide = logits.float()
    assert tokens.tolist() == [int((row == row.max()).nonzero()[0]) for row in wide]


@pytest.mark.parametrize("setting", [GREEDY, PLAIN, (0.8, 7, 0.9, 0.0)])
def test_what_is_no_number_is_found(
    sampling: Any, config: Any, dtype: torch.dtype, setting: Setting
) -> None:
    logits = torch.randn(5, 600).to(dtype)
    logits[0, [500, 310]] = NAN
    logits[0, 20] = INF
    logits[1, [599, 400]] = INF
    logits[2] = -INF
    logits[3] = -INF
    logits[3, 555] = -3.0
    logits[4] = NAN
    tokens = sampling.sampler(config)(logits, sampling.settings([setting] * 5))
    assert tokens.tolist() == [-311, 400, 0, 555, -1]


def test_noise_is_gumbel(sampling: Any, device: torch.device) -> None:
    index = torch.arange(64, dtype=torch.int32)
    sample = sampling.noise(torch.arange(512) * 2**40 - 7, torch.arange(512) * 5, index, 0).double()
    uniform = torch.exp(-torch.exp(-sample))
    bins = 64
    assert not improbable(torch.histc(uniform, bins, 0, 1), torch.full((bins,), 1 / bins))
    centred = uniform - 0.5
    along_tokens = (centred[:, 1:] * centred[:, :-1]).mean()
    along_seeds = (centred[1:] * centred[:-1]).mean()
    # The deviation of a product's mean is 1/12 over the root of 32768.
    assert max(abs(along_tokens), abs(along_seeds)) < 4.5 / 12 / 181
    assert sample.unique().numel() > 32_700


def test_streams_seeds_and_positions_differ(sampling: Any, device: torch.device) -> None:
    seeds = torch.tensor([5, 5, 6, 5 + 2**32, 5, -5])
    positions = torch.tensor([1, 2, 1, 1, 1 + 2**32, 1])
    index = torch.arange(3, dtype=torch.int32)
    both = torch.cat([sampling.noise(seeds, positions, index, stream) for stream in (0, 1)])
    assert both.unique().numel() == both.numel()
    assert torch.equal(both[:6], sampling.noise(seeds, positions, index, 0))


def test_frequencies(sampling: Any, config: Any, device: torch.device) -> None:
    """The definition has the right law, and the kernels do what the definition says."""
    logits = torch.full((1, 300), -INF)
    logits[0, [0, 7, 127, 128, 250, 299]] = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, 1.5])
    count = 20_480 if device.type == "cpu" else 100_000
    ids = torch.arange(300)[logits[0] > -INF]
    p = (logits[0].double() / 0.8).softmax(-1)[ids]
    chunks = []
    for first in range(0, count, 2048):
        batch = sampling.settings([PLAIN] * 2048, first)
        if device.type == "cpu":
            chunks.append(sampling.drawn(logits.expand(2048, -1), batch))
        else:
            chunks.append(sampling.sampler(config)(logits.expand(2048, -1).contiguous(), batch))
    counts = torch.bincount(torch.cat(chunks), minlength=300)
    assert counts[ids].sum() == counts.sum()
    assert not improbable(counts[ids].double(), p)


@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_draws_are_those_of_the_definition(
    sampling: Any, config: Any, dtype: torch.dtype, spread: float
) -> None:
    rows = 12
    logits = (torch.randn(rows, 600) * spread).to(dtype)
    temperatures = [0.3, 0.8, 1.0, 30.0]
    batch = sampling.settings([(temperatures[row % 4], 0, 1.0, 0.0) for row in range(rows)], -3)
    assert torch.equal(sampling.sampler(config)(logits, batch), sampling.drawn(logits, batch))


def test_extreme_temperatures(sampling: Any, config: Any) -> None:
    temperatures = [1e-38, 1e-30, 1e-6, 1e30, 3e38]
    logits = torch.randn(1, 300).expand(20, -1).contiguous()
    rows = [(temperature, 0, 1.0, 0.0) for temperature in temperatures for _ in range(4)]
    tokens = sampling.sampler(config)(logits, sampling.settings(rows)).view(5, 4)
    assert (tokens[:3] == logits[0].argmax()).all()
    assert (tokens >= 0).all() and (tokens < 300).all()
    assert len(tokens[3:].unique()) > 5


def rows_of(batch: SampleBatch, rows: list[int]) -> SampleBatch:
    return SampleBatch(*(column[rows] for column in batch[:6]), batch.all_greedy, batch.filtered)


def test_only_logits_seed_and_position_decide(sampling: Any, config: Any) -> None:
    rows: list[Setting] = [
        PLAIN,
        (1.0, 9, 0.9, 0.0),
        GREEDY,
        (1.5, 0, 1.0, 0.0),
        (2.0, 0, 0.5, 0.1),
    ]
    batch, logits = sampling.settings(rows, 11), torch.randn(5, 300).half()
    tokens = sampling.sampler(config)(logits, batch)
    order = [4, 2, 0, 1, 3]
    shuffled = sampling.sampler(config, tile=4, cut_tile=1)(logits[order], rows_of(batch, order))
    assert torch.equal(shuffled, tokens[order])
    for row in (1, 2, 3):
        alone = rows_of(batch, [row])._replace(filtered=row in (1, 4), all_greedy=row == 2)
        assert sampling.sampler(config, tile=8)(logits[row : row + 1], alone)[0] == tokens[row]
    wide = torch.full((5, 701), 99.0).half()
    wide[:, 1:301] = logits
    assert torch.equal(sampling.sampler(config)(wide[:, 1:301], batch), tokens)
    turned = logits[:2].t().contiguous().t()
    assert torch.equal(sampling.sampler(config)(turned, rows_of(batch, [0, 1])), tokens[:2])


def test_seed_and_position_decide(sampling: Any, config: Any) -> None:
    logits, sample = torch.zeros(6, 300), sampling.sampler(config)
    batch = sampling.settings([PLAIN] * 6)
    first = sample(logits, batch)
    assert torch.equal(first, sample(logits, batch))
    moved = sample(logits, batch._replace(positions_R=batch.positions_R + 1))
    reseeded = sample(logits, batch._replace(seeds_R=batch.seeds_R - 2**62))
    assert (first != moved).sum() > 4
    assert (first != reseeded).sum() > 4


def test_no_rows(sampling: Any, config: Any) -> None:
    assert sampling.sampler(config)(torch.zeros(0, 9), sampling.settings([PLAIN])).tolist() == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("setting", [GREEDY, PLAIN, (0.7, 20, 0.95, 0.0)])
def test_in_a_graph(sampling: Any, config: Any, setting: Setting) -> None:
    logits = torch.randn(5, 151_936).bfloat16()
    batch, sample = sampling.settings([setting] * 5), TritonSample(config)
    sample(logits, batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sample(logits, batch)
    for _ in range(3):
        logits.copy_(torch.randn(5, 151_936))
        batch.positions_R.add_(1)
        graph.replay()
        assert torch.equal(tokens, sample(logits, batch))
