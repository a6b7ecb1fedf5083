"""Filters: exactly what the definition keeps, and draws among it as if the rest were not there."""

from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.kernel import SampleBatch
from jackfield.plugins.kernels.triton.sample import Cut, TritonSample

Setting = tuple[float, int, float, float]
# The interpreter makes scalars of arrays of one element.
pytestmark = [
    pytest.mark.few_combinations,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
SETTINGS: list[Setting] = [
    (0.0, 3, 0.5, 0.1),
    (1.0, 0, 1.0, 0.0),
    (0.7, 20, 0.95, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 0, 0.9, 0.0),
    (1.0, 0, 0.0, 0.0),
    (1.5, 0, 1.0, 0.1),
    (1.3, 40, 0.8, 0.05),
    (2.0, 200, 0.6, 0.0),
    (1.3, 0, 0.8, 0.05),
]


def mask_of(cut: Cut, logits: Tensor) -> Tensor:
    x, lowest = logits.float(), cut.logit_R[:, None]
    ids = torch.arange(logits.shape[1])
    return (x > lowest) | ((x == lowest) & (ids <= cut.last_R[:, None]))


def check(sampling: Any, sample: Any, logits_V: Tensor, rows: list[Setting]) -> None:
    """The same logits under each setting."""
    logits, batch = logits_V.expand(len(rows), -1).contiguous(), sampling.settings(rows)
    expected = torch.stack([sampling.kept(logits_V, setting) for setting in rows])
    tokens = sample(logits, batch)
    mask = mask_of(sample.last, logits)
    assert mask.sum(-1).tolist() == expected.sum(-1).tolist()
    assert torch.equal(mask, expected)
    masked = torch.where(expected, logits.float(), float("-inf"))
    drawing = batch.temperature_R > 0
    some = SampleBatch(*(column[drawing] for column in batch[:6]), False, True)
    assert torch.equal(tokens[drawing], sampling.drawn(masked[drawing], some))
    assert torch.equal(tokens[~drawing], masked[~drawing].argmax(-1))
    check_blocks(sample, masked[drawing], batch.temperature_R[drawing], drawing)


def check_blocks(sample: Any, masked: Tensor, temperature_R: Tensor, rows: Tensor) -> None:
    """Largest logits and sums of weights are those of what is kept."""
    maxima, sums = (column[rows] for column in sample.blocks[:2])
    left = maxima >= sample.last.logit_R[rows, None]
    padding = maxima.shape[1] * 128 - masked.shape[1]
    x = torch.nn.functional.pad(masked, (0, padding), value=float("-inf"))
    x = x.view(*maxima.shape, 128)
    largest = x.amax(-1)
    assert torch.equal(torch.where(left, maxima, float("-inf")), largest)
    some = left & (largest > float("-inf"))
    weights = ((x - largest[..., None]) / temperature_R[:, None, None]).exp().sum(-1)
    torch.testing.assert_close(sums[some] * 2.0**-23, weights[some], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("vocabulary", "spread"), [(50, 1.0), (257, 4.0), (400, 0.02)])
def test_support(
    sampling: Any, config: Any, dtype: torch.dtype, vocabulary: int, spread: float
) -> None:
    check(
        sampling, sampling.sampler(config), (torch.randn(vocabulary) * spread).to(dtype), SETTINGS
    )


@pytest.mark.parametrize("vocabulary", [255, 256, 257])
def test_support_where_few_logits_become_many(
    sampling: Any, config: Any, dtype: torch.dtype, vocabulary: int
) -> None:
    """Up to 256 logits are compared with one another, and more are searched."""
    rows = [(1.0, 100, 0.7, 0.0), (1.0, 0, 0.999, 0.0)]
    logits = (torch.randn(vocabulary) * 0.02).to(dtype)
    check(sampling, sampling.sampler(config, cut_tile=4), logits, rows)


def test_a_larger_vocabulary(
    sampling: Any, config: Any, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more blocks than one program restricts, in more tiles than there are programs."""
    monkeypatch.setattr("jackfield.plugins.kernels.triton.sample.RESTRICTING", 6)
    logits = (torch.randn(9000) * 0.5).half()
    sample = sampling.sampler(config, tile=16, cut_tile=32)
    rows = [(1.0, 3000, 0.9, 0.0), (0.3, 7, 0.95, 0.0), (0.6, 0, 0.8, 0.2)]
    check(sampling, sample, logits, rows)


@pytest.mark.parametrize(
    "setting",
    [(1.0, 3, 1.0, 0.0), (1.0, 0, 0.55, 0.0), (1.0, 0, 1.0, 0.5), (1.0, 4, 0.6, 0.0)],
)
def test_equals_are_kept_by_lowest_id(
    sampling: Any, config: Any, dtype: torch.dtype, setting: Setting
) -> None:
    logits = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, -0.0]).to(dtype)
    check(sampling, sampling.sampler(config), logits, [setting])
    spaced = torch.full((600,), -2.0).to(dtype)
    spaced[::75] = logits
    check(sampling, sampling.sampler(config, cut_tile=4), spaced, [setting])


@pytest.mark.parametrize(
    "rows",
    [[(1.0, 129, 1.0, 0.0), (1.0, 256, 0.25, 0.0)], [(1.0, 0, 0.5, 0.0), (1.0, 0, 1.0, 1.0)]],
)
def test_all_equal(sampling: Any, config: Any, dtype: torch.dtype, rows: list[Setting]) -> None:
    logits = torch.full((512,), -0.75).to(dtype)
    check(sampling, sampling.sampler(config, cut_tile=4), logits, rows)


def test_impossible_tokens_are_never_kept(sampling: Any, config: Any, dtype: torch.dtype) -> None:
    logits = torch.full((500,), float("-inf")).to(dtype)
    logits[[3, 400, 499]] = torch.tensor([0.0, 1.0, 0.5]).to(dtype)
    rows: list[Setting] = [(1.0, 100, 1.0, 0.0), (1.0, 100, 0.7, 0.0), (1.0, 0, 0.999999, 0.0)]
    batch = sampling.settings(rows)
    tokens = sampling.sampler(config)(logits.expand(3, -1).contiguous(), batch)
    masked = torch.where(
        torch.stack([sampling.kept(logits, s) for s in rows]), logits.float(), -torch.inf
    )
    assert torch.equal(tokens, sampling.drawn(masked, batch))


@pytest.mark.parametrize(
    "rows",
    [[(30.0, 0, 0.9, 0.0), (0.5, 0, 0.9, 0.0)], [(30.0, 590, 1.0, 0.0), (20.0, 2, 1.0, 0.0)]],
)
def test_outliers(sampling: Any, config: Any, dtype: torch.dtype, rows: list[Setting]) -> None:
    """One logit far above and some far below the others."""
    logits = torch.randn(600)
    logits[77], logits[5], logits[6] = 90.0, -6e4, -1e4
    check(sampling, sampling.sampler(config, cut_tile=4), logits.to(dtype), rows)


def test_a_filter_that_keeps_all_changes_nothing(
    sampling: Any, config: Any, dtype: torch.dtype
) -> None:
    logits = torch.randn(1, 400).to(dtype).expand(4, -1).contiguous()
    filters = [(400, 1.0, 0.0), (0, 0.9999999, 0.0), (0, 1.0, 1e-9), (0, 1.0, 0.0)]
    plain = sampling.settings([(1.2, 0, 1.0, 0.0)] * 4, seed=3)
    filtered = sampling.settings([(1.2, *each) for each in filters], seed=3)
    sample = sampling.sampler(config, cut_tile=4)
    assert torch.equal(sample(logits, filtered), sample(logits, plain))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("spread", [0.0, 0.02, 1.0, 4.0])
def test_support_at_full_size(
    sampling: Any, config: Any, dtype: torch.dtype, spread: float
) -> None:
    logits = (torch.randn(151_936) * spread).to(dtype)
    sample = TritonSample(config)
    rows = [*SETTINGS, (1.0, 0, 0.99, 0.0), (0.9, 20_000, 0.95, 0.0)]
    batch, many = sampling.settings(rows), logits.expand(len(rows), -1).contiguous()
    mask = mask_of(sample.cut(many, batch), many)
    for row, setting in enumerate(rows):
        expected = sampling.kept(logits, setting)
        # Sums in float32 and in float64 may differ by the last of many tokens.
        assert (mask[row] != expected).sum() <= 1e-6 * expected.sum() + (setting[2] < 1)
    tokens = sample(many, batch)
    assert mask.gather(1, tokens[:, None]).all()
