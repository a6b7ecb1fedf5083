"""The best of all parts of a vocabulary is what the sampler of all of it gives."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api import NO_TOKEN, Best, OpSpec
from jackfield.core.engine.part_draw import in_order, tokens_of
from jackfield.plugins.kernels.torch_ops.sample import TorchSample
from jackfield.plugins.kernels.torch_ops.sample_part import TorchSamplePart
from jackfield.plugins.kernels.triton.sample_part import TritonSamplePart

# The interpreter makes scalars of arrays of one element.
pytestmark = [
    pytest.mark.few_combinations,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning"),
]
GREEDY, PLAIN, FILTERED = (0.0, 0, 1.0, 0.0), (0.8, 0, 1.0, 0.0), (0.8, 5, 1.0, 0.0)
HOT = (30.0, 0, 1.0, 0.0)
NAN, INF = float("nan"), float("inf")
EDGES = {"two": [0, 256, 503], "uneven": [0, 128, 384, 503], "empty": [0, 256, 503, 503, 503]}


def best_of(sample: Any, logits: Tensor, batch: Any, edges: list[int]) -> Tensor:
    """As ranks find it; each has its part among columns of padding."""
    keys = []
    for begin, end in pairwise(edges):
        padded = torch.full((len(logits), 512), 99.0, device=logits.device).to(logits.dtype)
        padded[:, : end - begin] = logits[:, begin:end]
        best = sample(padded[:, : end - begin], begin, batch)
        assert (best.value_R.dtype, best.token_R.dtype) == (torch.float32, torch.int64)
        keys.append(in_order(best))
    return tokens_of(torch.stack(keys).amax(0))


def hard_rows(dtype: torch.dtype) -> Tensor:
    """Ties over the edges of parts, zeros of both signs, infinities, what is no number."""
    logits = torch.randn(10, 503)
    logits[1] = -1.0
    logits[2] = 0.0
    logits[2, :300] = -0.0
    logits[3, [7, 300, 502]] = 9.0
    logits[4, [500, 300]] = NAN
    logits[5] = NAN
    logits[6, [255, 256]] = INF
    logits[7] = -INF
    logits[8, :256] = -INF
    logits[9, 502] = 9.0
    return logits.to(dtype)


@pytest.mark.parametrize("edges", EDGES.values(), ids=list(EDGES))
def test_greedy_parts(
    sampling: Any, config: Any, device: torch.device, dtype: torch.dtype, edges: list[int]
) -> None:
    logits = hard_rows(dtype)
    batch = sampling.settings([GREEDY] * len(logits))
    whole = sampling.sampler(config)(logits.clone(), batch)
    part = TritonSamplePart(config, sampling.Sizes(2, 2))
    assert part.draws(batch) and part.capturable()
    assert torch.equal(best_of(part, logits, batch, edges), whole)
    plain = TorchSamplePart()
    assert torch.equal(best_of(plain, logits, batch, edges), TorchSample()(logits, batch))
    assert torch.equal(TorchSample()(logits, batch), whole)


@pytest.mark.parametrize("edges", EDGES.values(), ids=list(EDGES))
def test_drawn_parts(sampling: Any, config: Any, dtype: torch.dtype, edges: list[int]) -> None:
    """Each row has its own seed and position, and some are greedy."""
    logits = torch.cat([hard_rows(dtype), torch.randn(14, 503).to(dtype)])
    batch = sampling.settings([(GREEDY, PLAIN, HOT)[row % 3] for row in range(len(logits))], 5)
    whole = sampling.sampler(config)(logits.clone(), batch)
    part = TritonSamplePart(config, sampling.Sizes(2, 2))
    assert part.draws(batch)
    assert torch.equal(best_of(part, logits, batch, edges), whole)


def test_who_draws_what(sampling: Any, config: Any) -> None:
    part, plain = TritonSamplePart(config), TorchSamplePart()
    drawn, filtered = sampling.settings([PLAIN, GREEDY]), sampling.settings([FILTERED, GREEDY])
    assert part.draws(drawn) and not plain.draws(drawn)
    assert not part.draws(filtered) and not plain.draws(filtered)


def test_the_shipped_table_serves(
    sampling: Any, config: Any, device: torch.device, dtype: torch.dtype
) -> None:
    part = TritonSamplePart(config)
    assert part.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    logits = torch.randn(3, 300).to(dtype)
    best = part(logits, 1280, sampling.settings([GREEDY] * 3))
    assert torch.equal(best.token_R, logits.float().argmax(-1) + 1280)
    assert torch.equal(best.value_R, logits.float().amax(-1))


def test_nothing(sampling: Any, config: Any) -> None:
    batch = sampling.settings([PLAIN])
    for sample in (TritonSamplePart(config), TorchSamplePart()):
        best = sample(torch.empty(1, 0), 503, batch)
        assert best.value_R.tolist() == [-INF] and best.token_R.tolist() == [NO_TOKEN]
    empty: Any = batch._replace(**{
        name: value[:0] for name, value in batch._asdict().items() if isinstance(value, Tensor)
    })  # fmt: skip
    assert TritonSamplePart(config)(torch.empty(0, 5), 0, empty).token_R.shape == (0,)


def test_order_of_values() -> None:
    values = torch.tensor([-INF, -3.0, -0.0, 0.0, 1e-40, 2.5, INF, NAN])
    keys = in_order(Best(values, torch.zeros(8, dtype=torch.int64)))
    assert keys[2] == keys[3]
    assert torch.equal(keys.sort().values, keys) and len(set(keys.tolist())) == 7
    ids = torch.tensor([0, 5, 0x7FFFFFFE])
    same = in_order(Best(torch.full((3,), -1.5), ids))
    assert torch.equal(tokens_of(same), ids)
    assert same[0] > same[1] > same[2]
    lost = in_order(Best(torch.full((3,), -NAN), ids))
    assert torch.equal(tokens_of(lost), -1 - ids)
