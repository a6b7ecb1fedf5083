"""Experts with quantized weights against float64, at shapes that no block divides."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

pytest.importorskip("triton")

from jackfield.core.api import OpSpec, QuantExpert, QuantKind, QuantWeight
from jackfield.plugins.kernels.triton import quant_experts as module
from jackfield.plugins.kernels.triton import quant_experts_dense
from jackfield.plugins.kernels.triton.quant_experts import TritonQuantExperts
from jackfield.plugins.kernels.triton.quant_experts_tiles import height_of

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
INT4, INT8, FP8 = QuantKind.INT4, QuantKind.INT8, QuantKind.FP8
SIZES = {INT4: 8, INT8: 128, FP8: 150}  # of codes
NEVER = 1 << 30
PLAIN = {"num_stages": 1, "TOGETHER": 1, "BLOCKS": 1}
PAIRS = {**PLAIN, "TILES": 2, "PARTS": 2, "num_warps": 2}
APART = {**PLAIN, "TILES": 1, "PARTS": 1, "num_warps": 2, "TOGETHER": 3}
WIDE = {**PLAIN, "TILES": 2, "PARTS": 1, "BLOCKS": 2, "num_warps": 2, "TOGETHER": 100}
ENTRIES = (PAIRS, APART, WIDE)


class Layer(NamedTuple):
    """Sizes of the model and of an expert, and how weights are quantized. group: 0 = all inputs."""

    hidden: int
    width: int
    kind: QuantKind
    group: int = 0
    rows: int = 1
    zeros: bool = False
    ordered: bool = False


LAYERS = {
    "int4 of 32 with zeros": Layer(64, 16, INT4, 32, zeros=True),
    "int4 of 64": Layer(96, 20, INT4, 64),
    "int4 that ends early": Layer(70, 16, INT4, 64, zeros=True),
    "int4 in order": Layer(64, 16, INT4, 64, zeros=True, ordered=True),
    "int8 of all": Layer(40, 24, INT8),
    "int8 of 32 with zeros": Layer(48, 17, INT8, 32, zeros=True),
    "fp8 of all": Layer(40, 16, FP8, rows=1 << 10),
    "fp8 in blocks": Layer(64, 32, FP8, 32, 32),
}
LARGER = {
    "int4 of 128": Layer(256, 24, INT4, 128),
    "int4 of 128 with zeros": Layer(202, 34, INT4, 128, zeros=True),
    "int4 of all": Layer(100, 20, INT4),
    "fp8 by output": Layer(80, 40, FP8),
    "fp8 in blocks of 128": Layer(144, 128, FP8, 128, 128),
    "fp8 in odd blocks": Layer(70, 40, FP8, 64, 5),
}
"""Those take longer than is worth it without a GPU."""
UNFIT = {
    "int4 of 16": Layer(48, 32, INT4, 16, zeros=True),
    "int8 of 24 in order": Layer(48, 24, INT8, 24, ordered=True),
}
"""Groups of which are no multiples of 32."""


class Mixture(NamedTuple):
    """Numbers of experts, of those of a token, and of tokens."""

    experts: int
    top: int
    tokens: int


class Chosen(NamedTuple):
    ids_TK: Tensor
    shares_TK: Tensor


class Table:
    """In the place of the shipped one, with one entry for all."""

    def __init__(self, entry: Mapping[str, int], **limits: int) -> None:
        self._entry = entry
        self._limits = {"TOKENS": 0, "TIMES": 1, "GROUPS": NEVER, **limits}

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Mapping[str, int]:
        return self._limits if shape == "limits" else self._entry


def made_with(config: Any, entry: Mapping[str, int], **limits: int) -> TritonQuantExperts:
    made = TritonQuantExperts(config)
    made._configs = Table(entry, **limits)  # type: ignore[assignment]
    return made


def by_tiles(config: Any, entry: Mapping[str, int] = PAIRS) -> TritonQuantExperts:
    return made_with(config, entry)


def directly(config: Any, entry: Mapping[str, int] = PAIRS) -> TritonQuantExperts:
    return made_with(config, entry, TOKENS=NEVER, TIMES=0)


def densely(config: Any) -> TritonQuantExperts:
    return made_with(config, PAIRS, GROUPS=0)


WAYS = (by_tiles, directly, densely)


def quantized(layer: Layer, outputs: int, inputs: int, rows: int) -> QuantWeight:
    kind, group = layer.kind, layer.group or inputs
    table = (-(-outputs // rows), -(-inputs // group))
    values = torch.randint(0, 256, (outputs, inputs // (1 + (kind is INT4))), dtype=torch.uint8)
    if kind is FP8:
        values[(values & 127) == 127] = 3  # those are no numbers
        values = values.view(torch.float8_e4m3fn)
    scales = (torch.rand(table) + 0.5) / (SIZES[kind] * inputs**0.5)
    zeros = torch.randint(0, 2 * kind.middle, table, dtype=torch.uint8) if layer.zeros else None
    return QuantWeight(kind, values, scales, zeros, group, rows, (outputs, inputs))


def make_experts(layer: Layer, count: int) -> list[QuantExpert]:
    """Some of them have inputs in an order of their own, if so."""
    found = []
    for number in range(count):
        rows = min(layer.rows, layer.width)
        gate_up = quantized(layer, 2 * layer.width, layer.hidden, rows)
        if layer.ordered and number != 1:
            gate_up = replace(gate_up, order_I=torch.randperm(layer.hidden))
        down = quantized(layer, layer.hidden, layer.width, min(layer.rows, layer.hidden))
        found.append(QuantExpert(gate_up, down))
    return found


def choices(mixture: Mixture, *names: str) -> Iterator[tuple[str, Chosen]]:
    """All over, all tokens to the same experts, none to the first and the last, some to nobody."""
    count, top, tokens = mixture
    spread = torch.rand(tokens, count).argsort(1)[:, :top]
    same = torch.randperm(count)[:top].expand(tokens, top).contiguous()
    inner = torch.rand(tokens, max(count - 2, top)).argsort(1)[:, :top] + (count - 2 >= top)
    nobody = spread.clone()
    nobody[tokens // 2 :: 3] = -1
    nobody[0, 0] = -1
    ids = {"spread": spread, "same": same, "inner": inner, "nobody": nobody}
    for name in names or ids:
        yield name, Chosen(ids[name], torch.rand(tokens, top) + 0.1)


def matrix(weight: QuantWeight) -> Tensor:
    """What it stands for, with inputs in the order of the model."""
    found = weight.dequantized(torch.float32).double()
    if weight.order_I is None:
        return found
    return found.index_select(1, weight.order_I.argsort())


def truth(x: Tensor, chosen: Chosen, experts: list[QuantExpert]) -> Tensor:
    wide, shares = x.double(), chosen.shares_TK.double()
    plain = [(matrix(expert.gate_up), matrix(expert.down)) for expert in experts]
    out = torch.zeros_like(wide)
    for token, row in enumerate(chosen.ids_TK.tolist()):
        for place, expert in enumerate(row):
            if expert >= 0:
                gate, up = (plain[expert][0] @ wide[token]).chunk(2)
                out[token] += shares[token, place] * (plain[expert][1] @ (silu(gate) * up))
    return out


def check(found: Tensor, wanted: Tensor) -> None:
    scale = wanted.norm(dim=1).clamp(min=1e-3)
    distance = (found.double() - wanted).norm(dim=1) / scale
    assert float(distance.max()) < TOLERANCES[found.dtype]


def check_all(
    made: TritonQuantExperts, layer: Layer, mixture: Mixture, dtype: torch.dtype, *names: str
) -> None:
    experts = make_experts(layer, mixture.experts)
    packed = made.pack(iter(experts), mixture.experts)
    x = torch.randn(mixture.tokens, layer.hidden).to(dtype)
    before = x.clone()
    for name, chosen in choices(mixture, *names):
        counts = torch.full((mixture.experts,), 5)
        found = made(x, *chosen, packed, counts)
        assert found.dtype is dtype and found.shape == x.shape, name
        check(found, truth(x, chosen, experts))
        ids = chosen.ids_TK.flatten().tolist()
        wanted = [5 + ids.count(expert) for expert in range(mixture.experts)]
        assert counts.tolist() == wanted, name
    assert torch.equal(x, before)


@pytest.fixture
def only_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Tensor:
        raise AssertionError("made plain matrices")

    monkeypatch.setattr(module, "multiply_dense", refuse)


@pytest.mark.few_combinations
@pytest.mark.usefixtures("only_kernels")
@pytest.mark.parametrize("case", LAYERS)
def test_tiles_and_single_rows(config: Any, dtype: torch.dtype, case: str) -> None:
    """Both kinds in turn."""
    place = list(LAYERS).index(case)
    way, entry = (by_tiles, directly)[place % 2], ENTRIES[place % len(ENTRIES)]
    check_all(way(config, entry), LAYERS[case], Mixture(3, 2, 2), dtype, "nobody")


@pytest.mark.all_kernels
@pytest.mark.usefixtures("only_kernels")
@pytest.mark.parametrize("entry", ENTRIES, ids=["pairs", "apart", "wide"])
@pytest.mark.parametrize("case", {**LAYERS, **LARGER})
def test_all_ways_of_all_weights(config: Any, dtype: torch.dtype, case: str, entry: Any) -> None:
    layer = {**LAYERS, **LARGER}[case]
    check_all(by_tiles(config, entry), layer, Mixture(4, 2, 5), dtype)
    check_all(directly(config, entry), layer, Mixture(5, 3, 2), dtype)


@pytest.mark.few_combinations
@pytest.mark.usefixtures("only_kernels")
@pytest.mark.parametrize("tokens", [9, 33])
def test_all_tokens_to_one_expert(config: Any, dtype: torch.dtype, tokens: int) -> None:
    """In tiles of 32 rows; none of them to the others."""
    layer = Layer(40, 16, INT8)
    check_all(by_tiles(config, WIDE), layer, Mixture(2, 1, tokens), dtype, "same")


@pytest.mark.all_kernels
@pytest.mark.usefixtures("only_kernels")
@pytest.mark.parametrize("entry", [APART, WIDE], ids=["apart", "wide"])
@pytest.mark.parametrize("tokens", [1, 8, 17, 40, 100])
def test_tiles_of_all_heights(config: Any, dtype: torch.dtype, entry: Any, tokens: int) -> None:
    for case in ("int4 of 64", "fp8 in blocks"):
        check_all(by_tiles(config, entry), LAYERS[case], Mixture(3, 1, tokens), dtype)


@pytest.mark.few_combinations
@pytest.mark.parametrize("case", ["int4 in order", "fp8 in odd blocks", *UNFIT])
def test_plain_matrices(
    config: Any, dtype: torch.dtype, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all experts, of some at a time, and of one; in any case where groups do not fit."""
    layer, way = {**LAYERS, **LARGER, **UNFIT}[case], directly if case in UNFIT else densely
    at_once = [NEVER, 5 * layer.width * layer.hidden, 1][len(case) % 3]
    monkeypatch.setattr(quant_experts_dense, "DENSE_ELEMENTS", at_once)
    check_all(way(config), layer, Mixture(3, 2, 3), dtype, "nobody")


@pytest.mark.few_combinations
@pytest.mark.parametrize("tokens", [1, 3])
def test_as_shipped(config: Any, dtype: torch.dtype, tokens: int) -> None:
    check_all(
        TritonQuantExperts(config), Layer(48, 16, INT8), Mixture(4, 2, tokens), dtype, "nobody"
    )


@pytest.mark.all_kernels
@pytest.mark.parametrize("tokens", [1, 3, 24, 80, 600])
@pytest.mark.parametrize("case", LARGER)
def test_larger_as_shipped(config: Any, dtype: torch.dtype, tokens: int, case: str) -> None:
    check_all(TritonQuantExperts(config), LARGER[case], Mixture(16, 2, tokens), dtype)


@pytest.mark.few_combinations
@pytest.mark.parametrize("way", WAYS)
def test_nobody_at_all_and_no_token(config: Any, dtype: torch.dtype, way: Any) -> None:
    layer, made = LAYERS["int8 of all"], way(config)
    packed = made.pack(iter(make_experts(layer, 4)), 4)
    x = torch.randn(3, layer.hidden).to(dtype)
    nobody = Chosen(torch.full((3, 2), -1), torch.full((3, 2), torch.nan))
    counts = torch.zeros(4, dtype=torch.int64)
    assert not made(x, *nobody, packed, counts).any()
    assert not counts.any()
    nothing = made(x[:0], *(part[:0] for part in nobody), packed, counts)
    assert nothing.shape == (0, layer.hidden)


@pytest.mark.few_combinations
@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_chosen_has_no_part(config: Any, dtype: torch.dtype, way: Any) -> None:
    """Nor has a token that is no number any in the others, nor what lies around the tensors."""
    layer, made = Layer(40, 16, INT8, zeros=True), way(config)
    experts = make_experts(layer, 4)
    experts[0].gate_up.scales_RG[:] = torch.inf
    experts[3].down.scales_RG[:] = torch.nan
    packed = made.pack(iter(experts), 4)
    ((_, chosen),) = choices(Mixture(4, 2, 3), "inner")
    apart = torch.full((5, 3 * layer.hidden), torch.nan, dtype=dtype)
    apart[1:4, 8 : 8 + layer.hidden] = torch.randn(3, layer.hidden).to(dtype)
    x = apart[1:4, 8 : 8 + layer.hidden]
    wanted = truth(x, chosen, experts)
    x[1] = torch.nan
    found = made(x, *chosen, packed)
    assert bool(found[1].isnan().all())
    others = torch.tensor([0, 2])
    check(found[others], wanted[others])


@pytest.mark.few_combinations
@pytest.mark.parametrize("way", WAYS)
def test_a_token_does_not_depend_on_the_others(config: Any, dtype: torch.dtype, way: Any) -> None:
    layer, made = Layer(32, 16, INT8, ordered=True), way(config)
    packed = made.pack(iter(make_experts(layer, 4)), 4)
    x = torch.randn(3, layer.hidden).to(dtype)
    ((_, chosen),) = choices(Mixture(4, 1, 3), "spread")
    whole = made(x, *chosen, packed)
    assert torch.equal(made(x[1:], *(each[1:] for each in chosen), packed), whole[1:])
    order = torch.tensor([2, 0, 1])
    assert torch.equal(made(x[order], *(each[order] for each in chosen), packed), whole[order])


@pytest.mark.few_combinations
@pytest.mark.parametrize("way", WAYS)
def test_ids_past_the_end_are_nobodys(config: Any, dtype: torch.dtype, way: Any) -> None:
    """Where launches are left out ids are whatever lay in their memory."""
    layer, made = Layer(32, 16, INT8, ordered=True), way(config)
    experts = make_experts(layer, 4)
    packed = made.pack(iter(experts), 4)
    x = torch.randn(2, layer.hidden).to(dtype)
    only = Chosen(torch.tensor([[1, -1], [-1, -1]]), torch.ones(2, 2))
    found = made(x, torch.tensor([[1, 1 << 40], [-7, 4]]), only.shares_TK, packed)
    check(found, truth(x, only, experts))


@pytest.mark.few_combinations
def test_zero_points_and_orders_of_some_experts_only(config: Any, dtype: torch.dtype) -> None:
    made, experts = by_tiles(config), make_experts(Layer(64, 16, INT4, 64), 3)
    other = make_experts(Layer(64, 16, INT4, 64, zeros=True, ordered=True), 1)[0]
    experts[1] = QuantExpert(other.gate_up, experts[1].down)
    experts[2] = QuantExpert(experts[2].gate_up, other.down)
    packed = made.pack(iter(experts), 3)
    x = torch.randn(2, 64).to(dtype)
    ((_, chosen),) = choices(Mixture(3, 3, 2), "spread")
    check(made(x, *chosen, packed), truth(x, chosen, experts))


@pytest.mark.parametrize("kind", QuantKind)
def test_packed_experts_are_no_larger(config: Any, kind: QuantKind) -> None:
    experts = make_experts(Layer(256, 128, kind, 128), 3)
    packed = TritonQuantExperts(config).pack(iter(experts), 3)
    held = [part.words.nbytes + part.scales_GR.nbytes for part in (packed.gate_up, packed.down)]
    assert sum(held) == sum(weight.nbytes for expert in experts for weight in expert)


def test_experts_are_asked_for_one_by_one(config: Any) -> None:
    """One is packed before the next one comes, and what the iterator raises comes through."""
    kept: list[Any] = []

    def come() -> Iterator[QuantExpert]:
        for expert in make_experts(Layer(64, 32, INT8), 3):
            yield expert
            kept.append(expert)
        raise LookupError("the fourth")

    with pytest.raises(LookupError, match="the fourth"):
        TritonQuantExperts(config).pack(come(), 4)
    assert len(kept) == 3


def test_heights_follow_the_load() -> None:
    assert [height_of(load) for load in (1, 4, 5, 8, 9, 100)] == [8, 8, 16, 16, 32, 32]


def test_it_serves_and_may_be_captured(config: Any, dtype: torch.dtype, device: Any) -> None:
    assert TritonQuantExperts(config).unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert TritonQuantExperts(config).capturable()


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["int4", "int4 in order", "fp8"])
@pytest.mark.parametrize("tokens", [1, 4, 20, 64, 300, 3000])
def test_a_captured_call_follows_its_ids(config: Any, tokens: int, case: str) -> None:
    """At the sizes of a model, with others' ids in each replay."""
    int4 = Layer(1024, 704, INT4, 64, zeros=True, ordered="order" in case)
    layer = Layer(1024, 768, FP8, 128, 128) if case == "fp8" else int4
    made, mixture = TritonQuantExperts(config), Mixture(64, 6, tokens)
    packed = made.pack(iter(make_experts(layer, 64)), 64)
    x, counts = torch.randn(tokens, 1024).bfloat16(), torch.zeros(64, dtype=torch.int64)
    ((_, kept),) = choices(mixture, "spread")
    made(x, *kept, packed, counts)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = made(x, *kept, packed, counts)
    counts.zero_()
    for _, chosen in choices(mixture):
        kept.ids_TK.copy_(chosen.ids_TK)
        kept.shares_TK.copy_(chosen.shares_TK)
        graph.replay()
        check(out, made(x, *chosen, packed).double())
    assert int(counts.sum()) > 0
