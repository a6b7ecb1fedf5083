"""Experts against float64, by each way to make products, at shapes that no block divides."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

pytest.importorskip("triton")

from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton import experts as module
from jackfield.plugins.kernels.triton import experts_grouped
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.experts import Limits, TritonExperts, is_sparse
from jackfield.plugins.kernels.triton.experts_align import align, most_tiles
from jackfield.plugins.kernels.triton.experts_work import ExpertWork

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
HIDDEN, WIDTH = 40, 24
ALL = ("all over", "same", "not at the ends", "nobody")
PLAIN = {"num_warps": 4, "num_stages": 2}
TILE = {"ROWS": 16, "OUTPUTS": 32, "BLOCK": 32, "TOGETHER": 1, **PLAIN}
VECTOR = {"OUTPUTS": 16, "UNROLL": 2, "num_warps": 1, "num_stages": 1}
NEVER, ALWAYS = 1 << 30, 0
Entries = Mapping[str, Mapping[str, int]]


def entries(**tile: int) -> Entries:
    """A table whose products of tiles have this in place of the usual."""
    return {
        "limits": {"TOKENS": 0, "TIMES": 1, "GROUPS": NEVER},
        "align_few": {"BLOCK": 64, **PLAIN},
        "align_many": {"BLOCK": 512, **PLAIN},
        "sum": {"BLOCK": 64 if tile else 32, **PLAIN},
        "gate_up_vector": VECTOR,
        "down_vector": {**VECTOR, "AHEAD": 0},
        "gate_up_1": {**TILE, **tile},
        "down_1": {**TILE, "AHEAD": 0, **tile},
    }


class Table:
    """In the place of the shipped one, with one class of tiles."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Mapping[str, int]:
        return self._entries[shape]


class Mixture(NamedTuple):
    """Numbers of experts, of those of a token, and of tokens."""

    experts: int
    top: int
    tokens: int


class Weights(NamedTuple):
    gate_up_E2FD: Tensor
    down_EDF: Tensor


class Chosen(NamedTuple):
    ids_TK: Tensor
    shares_TK: Tensor


def operation(config: Any, table: Entries) -> TritonExperts:
    made = TritonExperts(config)
    made._configs, made._largest = Table(table), 1  # type: ignore[assignment]
    return made


def by_tiles(config: Any, **tile: int) -> TritonExperts:
    return operation(config, entries(**tile))


def by_vectors(config: Any) -> TritonExperts:
    return operation(config, {**entries(), "limits": {"TOKENS": NEVER, "TIMES": 0, "GROUPS": 0}})


def make_weights(experts: int, dtype: torch.dtype) -> Weights:
    gate_up = torch.randn(experts, 2 * WIDTH, HIDDEN) * 0.3
    down = torch.randn(experts, HIDDEN, WIDTH) * 0.3
    return Weights(gate_up.to(dtype), down.to(dtype))


def make_x(tokens: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(tokens, HIDDEN).to(dtype)


def choices(mixture: Mixture) -> dict[str, Chosen]:
    """All over, all tokens to the same experts, none to the first and the last, some to nobody."""
    count, top, tokens = mixture
    spread = torch.rand(tokens, count).argsort(1)[:, :top]
    same = torch.randperm(count)[:top].expand(tokens, top).contiguous()
    inner = torch.rand(tokens, max(count - 2, top)).argsort(1)[:, :top] + (count - 2 >= top)
    nobody = spread.clone()
    nobody[tokens // 2 :: 3] = -1
    nobody[0, 0] = -1
    ids = dict(zip(ALL, (spread, same, inner, nobody), strict=True))
    return {
        name: Chosen(some.contiguous(), torch.rand(tokens, top) + 0.1)
        for name, some in ids.items()
    }


def truth(x: Tensor, chosen: Chosen, weights: Weights) -> Tensor:
    wide, (gate_up, down) = x.double(), (part.double() for part in weights)
    shares = chosen.shares_TK.double()
    out = torch.zeros_like(wide)
    for token, row in enumerate(chosen.ids_TK.tolist()):
        for place, expert in enumerate(row):
            if expert >= 0:
                gate, up = (gate_up[expert] @ wide[token]).chunk(2)
                out[token] += shares[token, place] * (down[expert] @ (silu(gate) * up))
    return out


def check(found: Tensor, wanted: Tensor) -> None:
    scale = wanted.norm(dim=1).clamp(min=1e-3)
    distance = (found.double() - wanted).norm(dim=1) / scale
    assert float(distance.max()) < TOLERANCES[found.dtype]


def counted(chosen: Chosen, experts: int) -> list[int]:
    ids = chosen.ids_TK.flatten().tolist()
    return [ids.count(expert) for expert in range(experts)]


def check_all(
    made: TritonExperts, mixture: Mixture, dtype: torch.dtype, names: Sequence[str] = ALL
) -> None:
    weights, x = make_weights(mixture.experts, dtype), make_x(mixture.tokens, dtype)
    before = x.clone()
    for name in names:
        chosen = choices(mixture)[name]
        counts = torch.full((mixture.experts,), 5)
        found = made(x, *chosen, *weights, counts)
        assert found.dtype is dtype and found.shape == x.shape, name
        check(found, truth(x, chosen, weights))
        assert [count - 5 for count in counts.tolist()] == counted(chosen, mixture.experts), name
    assert torch.equal(x, before)


@pytest.mark.few_combinations
@pytest.mark.parametrize(
    "mixture", [Mixture(8, 1, 1), Mixture(64, 6, 2), Mixture(128, 8, 1), Mixture(60, 4, 3)], ids=str
)
def test_vectors(config: Any, dtype: torch.dtype, mixture: Mixture) -> None:
    check_all(by_vectors(config), mixture, dtype)


@pytest.mark.few_combinations
@pytest.mark.parametrize(
    "mixture", [Mixture(8, 2, 1), Mixture(6, 6, 5), Mixture(12, 3, 7), Mixture(8, 1, 17)], ids=str
)
def test_tiles(config: Any, dtype: torch.dtype, mixture: Mixture) -> None:
    check_all(by_tiles(config), mixture, dtype)


@pytest.mark.few_combinations
@pytest.mark.parametrize(
    "tile",
    [
        {"ROWS": 8, "TOGETHER": 3},
        {"ROWS": 32, "OUTPUTS": 32, "TOGETHER": 2},
        {"BLOCK": 16, "OUTPUTS": 16},
        {"BLOCK": 64, "TOGETHER": 100},
    ],
    ids=str,
)
def test_tiles_of_all_sizes(config: Any, dtype: torch.dtype, tile: dict[str, int]) -> None:
    check_all(by_tiles(config, **tile), Mixture(5, 2, 37), dtype, ["all over", "nobody"])


def test_many_tokens_and_experts(config: Any) -> None:
    check_all(by_tiles(config, ROWS=64), Mixture(8, 1, 300), torch.float32, ["nobody"])
    check_all(by_tiles(config), Mixture(64, 6, 3), torch.float32, ["same"])


@pytest.mark.all_kernels
@pytest.mark.parametrize(
    "mixture", [Mixture(8, 2, 300), Mixture(64, 6, 17), Mixture(128, 8, 7)], ids=str
)
def test_many_of_all_types(config: Any, dtype: torch.dtype, mixture: Mixture) -> None:
    check_all(by_tiles(config, ROWS=32), mixture, dtype)
    check_all(TritonExperts(config), mixture, dtype)


@pytest.mark.few_combinations
@pytest.mark.parametrize("tokens", [3, 40])
def test_as_shipped(config: Any, dtype: torch.dtype, tokens: int) -> None:
    check_all(TritonExperts(config), Mixture(32, 2, tokens), dtype, ["nobody"])


def test_groups_where_torch_has_some(
    config: Any, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU by the library itself. What is not anybody's lies behind the last group."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if device.type == "cpu":
        monkeypatch.setattr(module, "have_groups", lambda work: True)
        make = experts_grouped.grouped_mm
        monkeypatch.setattr(experts_grouped, "grouped_mm", lambda *a, **n: spoilt(make(*a, **n), n))
    table = {**entries(), "limits": {"TOKENS": 0, "TIMES": 1, "GROUPS": 0}}
    made = operation(config, table)
    check_all(made, Mixture(4, 2, 23), dtype)
    check_all(made, Mixture(20, 6, 2), dtype, ["nobody"])


def spoilt(made_AO: Tensor, named: Mapping[str, Tensor]) -> Tensor:
    """With what a GPU may leave behind the last group."""
    made_AO[int(named["offs"][-1]) :] = torch.nan
    return made_AO


@pytest.mark.parametrize("way", [by_tiles, by_vectors])
def test_nobody_at_all_and_no_token(config: Any, dtype: torch.dtype, way: Any) -> None:
    weights, x = make_weights(8, dtype), make_x(3, dtype)
    nobody = Chosen(torch.full((3, 2), -1), torch.full((3, 2), torch.nan))
    counts = torch.zeros(8, dtype=torch.int64)
    assert not way(config)(x, *nobody, *weights, counts).any()
    assert not counts.any()
    nothing = way(config)(x[:0], *(part[:0] for part in nobody), *weights, counts)
    assert nothing.shape == (0, HIDDEN)


@pytest.mark.parametrize("way", [by_tiles, by_vectors])
def test_what_was_not_chosen_has_no_part(config: Any, dtype: torch.dtype, way: Any) -> None:
    """Nor has a token that is no number any in the others, nor what lies around the tensors."""
    weights = make_weights(6, dtype)
    weights.gate_up_E2FD[5], weights.down_EDF[0] = torch.inf, torch.nan
    chosen = choices(Mixture(6, 3, 5))["not at the ends"]
    apart = torch.full((7, 3 * HIDDEN), torch.nan, dtype=dtype)
    apart[1:6, 8 : 8 + HIDDEN] = make_x(5, dtype)
    x = apart[1:6, 8 : 8 + HIDDEN]
    wanted = truth(x, chosen, weights)
    x[3] = torch.nan
    found = way(config)(x, *chosen, *weights)
    assert bool(found[3].isnan().all())
    others = torch.tensor([0, 1, 2, 4])
    check(found[others], wanted[others])
    check(way(config)(x.t().contiguous().t()[others], *(c[others] for c in chosen), *weights),
          wanted[others])  # fmt: skip


@pytest.mark.parametrize("way", [by_tiles, by_vectors])
def test_a_token_does_not_depend_on_the_others(config: Any, dtype: torch.dtype, way: Any) -> None:
    weights, x = make_weights(8, dtype), make_x(5, dtype)
    chosen = choices(Mixture(8, 2, 5))["all over"]
    whole = way(config)(x, *chosen, *weights)
    part = way(config)(x[2:], *(each[2:] for each in chosen), *weights)
    assert torch.equal(whole[2:], part)
    order = torch.randperm(5)
    assert torch.equal(way(config)(x[order], *(each[order] for each in chosen), *weights),
                       whole[order])  # fmt: skip


def work_of(ids: Tensor, experts: int) -> ExpertWork:
    x = torch.zeros(len(ids), HIDDEN)
    weights = make_weights(experts, torch.float32)
    return ExpertWork(x, ids, torch.zeros(ids.shape), None, *weights)


@pytest.mark.few_combinations
@pytest.mark.parametrize("rows", [8, 64])
@pytest.mark.parametrize(
    "mixture", [Mixture(4, 3, 400), Mixture(12, 6, 21), Mixture(3, 1, 1)], ids=str
)
def test_assignments_are_sorted_and_cut(config: Any, mixture: Mixture, rows: int) -> None:
    for name, chosen in choices(mixture).items():
        work = work_of(chosen.ids_TK, mixture.experts)
        aligned = align(work, rows, Table(entries()))  # type: ignore[arg-type]
        ids = chosen.ids_TK.flatten()
        number = int((ids >= 0).sum())
        order = ids.where(ids >= 0, mixture.experts).argsort(stable=True)
        tokens = (order // mixture.top)[:number].tolist()
        rest = [0] * (work.assignments - number)
        assert aligned.token_A.tolist() == tokens + rest, name
        places = torch.full_like(ids, -1)
        places[order[:number]] = torch.arange(number)
        assert aligned.place_A.tolist() == places.tolist(), name
        check_tiles(aligned.tiles.tolist(), ids[order].tolist(), rows)
        ends = [int(((ids >= 0) & (ids <= expert)).sum()) for expert in range(mixture.experts)]
        assert aligned.ends_E.tolist() == ends, name


def check_tiles(tiles: list[list[int]], ids: list[int], rows: int) -> None:
    """They hold all rows of all experts in order, and those that are not needed come last."""
    needed = [tile for tile in tiles if tile[0] >= 0]
    assert tiles[len(needed) :] == [[-1, 0, 0]] * (len(tiles) - len(needed))
    covered: list[int] = []
    for expert, first, end in needed:
        assert first == len(covered) and 0 < end - first <= rows
        covered += [expert] * (end - first)
        assert end == len(ids) or ids[end] != expert or end - first == rows
    assert covered == [expert for expert in ids if expert >= 0]


def test_there_are_never_more_tiles(config: Any) -> None:
    """However tokens choose."""
    for tokens, top, experts, rows in [(9, 2, 8, 4), (1, 8, 8, 16), (17, 1, 4, 16), (64, 4, 60, 8)]:
        work = work_of(torch.zeros(tokens, top, dtype=torch.int64), experts)
        most = most_tiles(work, rows)
        for _ in range(20):
            ids = torch.rand(tokens, experts).add(torch.rand(experts)).argsort(1)[:, :top]
            needed = sum(-(-int(n) // rows) for n in torch.bincount(ids.flatten()))
            assert needed <= most
        assert most <= experts * -(-tokens // rows)


def test_ids_past_the_end_are_nobodys(config: Any, dtype: torch.dtype) -> None:
    """Where launches are left out ids are whatever lay in their memory."""
    weights, x = make_weights(4, dtype), make_x(2, dtype)
    chosen = Chosen(torch.tensor([[1, 1 << 40], [-7, 4]]), torch.ones(2, 2))
    only = Chosen(torch.tensor([[1, -1], [-1, -1]]), torch.ones(2, 2))
    for way in (by_tiles, by_vectors):
        check(way(config)(x, *chosen, *weights), truth(x, only, weights))


@pytest.mark.parametrize(
    ("mixture", "sparse"),
    [
        (Mixture(8, 2, 1), True),
        (Mixture(128, 8, 4), True),
        (Mixture(64, 6, 2), True),
        (Mixture(64, 6, 4), False),
        (Mixture(128, 1, 5), False),
    ],
    ids=str,
)
def test_when_nothing_is_sorted(mixture: Mixture, sparse: bool) -> None:
    ids = torch.zeros(mixture.tokens, mixture.top, dtype=torch.int64)
    assert is_sparse(work_of(ids, mixture.experts), Limits(4, 4, NEVER)) == sparse


def test_both_products_of_a_class_have_the_same_tiles() -> None:
    table = Configs("experts")
    rows = {(e.shape, e.dtype, e.architecture): e.config.get("ROWS") for e in table.entries()}
    names = [key for key in rows if key[0].startswith("gate_up_") and key[0] != "gate_up_vector"]
    assert len(names) > 5
    for shape, *rest in names:
        assert rows[shape.replace("gate_up", "down"), *rest] == rows[shape, *rest]


def test_it_serves_and_may_be_captured(config: Any, dtype: torch.dtype, device: Any) -> None:
    made = TritonExperts(config)
    assert made.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert made.capturable()


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 4, 20, 64, 300])
def test_a_captured_call_follows_its_ids(config: Any, tokens: int) -> None:
    """At the sizes of a model, with others' ids in each replay."""
    mixture, made = Mixture(64, 6, tokens), TritonExperts(config)
    gate_up = torch.randn(64, 2 * 704, 1024).bfloat16() * 0.05
    weights = Weights(gate_up, torch.randn(64, 1024, 704).bfloat16() * 0.05)
    x, counts = torch.randn(tokens, 1024).bfloat16(), torch.zeros(64, dtype=torch.int64)
    kept = choices(mixture)["all over"]
    made(x, *kept, *weights, counts)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = made(x, *kept, *weights, counts)
    for name, chosen in choices(mixture).items():
        for own, other in zip(kept, chosen, strict=True):
            own.copy_(other)
        counts.zero_()
        graph.replay()
        check(out, by_expert(x, chosen, weights))
        assert counts.tolist() == counted(chosen, 64), name


def by_expert(x: Tensor, chosen: Chosen, weights: Weights) -> Tensor:
    """As `truth`, all tokens of an expert at once."""
    out = torch.zeros_like(x, dtype=torch.float64)
    for expert in range(len(weights.down_EDF)):
        token, place = torch.nonzero(chosen.ids_TK == expert, as_tuple=True)
        rows = x[token].double() @ weights.gate_up_E2FD[expert].double().t()
        gate, up = rows.chunk(2, 1)
        made = (silu(gate) * up) @ weights.down_EDF[expert].double().t()
        out.index_add_(0, token, made * chosen.shares_TK[token, place].double()[:, None])
    return out
