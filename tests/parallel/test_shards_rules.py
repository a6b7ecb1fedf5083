"""Which parts ranks take: together they are the whole, and what does not divide is refused."""

import json
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from jackfield.core.api import (
    COLLECTIVES,
    RANK_OPERATIONS,
    ConfigError,
    KernelPlugin,
    KvSpec,
    ModelError,
    OpSpec,
    PolicyConfig,
    Ranks,
    Shard,
    Split,
)
from jackfield.core.checkpoint.dummy_quant_weights import DummyQuantWeights
from jackfield.core.checkpoint.dummy_weights import DummyWeights
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.checkpoint.tensor_files import find_tensor_files
from jackfield.core.engine.operations import bind
from jackfield.core.executors.division import check_ranks, rank_counts, rank_spec
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.models.blocks.id_part import IdPart
from jackfield.plugins.models.blocks.ranks import summed
from jackfield.plugins.models.blocks.share import Share

CPU = torch.device("cpu")
KV = KvSpec(4, 2, 16, torch.float32, 16)
SIZES = st.integers(1, 16)


def shards(size: int) -> list[Shard]:
    return [Shard(rank, size) for rank in range(size)]


@given(size=SIZES, each=st.integers(1, 9))
def test_even_parts_lie_side_by_side(size: int, each: int) -> None:
    parts = [shard.part(each * size) for shard in shards(size)]
    assert [index for part in parts for index in part] == list(range(each * size))
    assert {len(part) for part in parts} == {each}


@given(count=SIZES, copies=st.integers(2, 5), group=st.integers(1, 4))
def test_query_heads_have_their_keys_on_the_same_rank(count: int, copies: int, group: int) -> None:
    """Fewer heads of keys than ranks: each is held by `copies` of them."""
    size = count * copies
    for shard in shards(size):
        (key,) = shard.part(count)
        queries = shard.part(size * group)
        assert {query * count // (size * group) for query in queries} == {key}
        assert Share.heads(count, 8, shard) == (count * 8, range(key * 8, key * 8 + 8))


@pytest.mark.parametrize(("count", "size"), [(6, 4), (4, 6), (3, 2), (0, 2)])
def test_parts_that_are_not_even_are_refused(count: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"{count} do not divide among {size} ranks"):
        Shard(0, size).part(count)


@given(size=SIZES, count=st.integers(0, 99))
def test_shares_need_not_be_even(size: int, count: int) -> None:
    parts = [shard.share(count) for shard in shards(size)]
    assert [index for part in parts for index in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(size=SIZES, count=st.integers(1, 9999))
def test_each_id_is_on_one_rank(size: int, count: int) -> None:
    parts = [IdPart.of(count, shard) for shard in shards(size)]
    assert [index for part in parts for index in part.ids] == list(range(count))
    (rows,) = {part.rows for part in parts}
    assert all(part.total == count and len(part.ids) <= rows for part in parts)
    if size == 1:
        assert rows == count
        return
    assert rows % 128 == 0 and rows * size - count < 128 * size
    # Logits are gathered in the order of ranks, so padding may only be behind all ids.
    assert all(part.ids.start in (rank * rows, count) for rank, part in enumerate(parts))


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    split=st.sampled_from([Split.ROWS, Split.COLUMNS]),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_parts_of_files_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, int],
    split: Split,
    cuts: list[int],
) -> None:
    """Uneven and empty ones too."""
    folder, whole = tmp_path_factory.mktemp("model"), torch.randn(shape)
    save_file({"w": whole}, folder / "model.safetensors")
    axis = 0 if split is Split.ROWS else 1
    edges = [0, *sorted(min(cut, shape[axis]) for cut in cuts), shape[axis]]
    parts = []
    for rank, (begin, end) in enumerate(pairwise(edges)):
        shard = Shard(rank, len(edges) - 1)
        weights = SafetensorsWeights(
            find_tensor_files(folder), torch.float32, CPU, shard, SilentProgress()
        )
        with weights:
            parts.append(weights.take("w", shape, split, range(begin, end)))
            weights.finish()
        assert weights.bytes_taken == parts[-1].nbytes
    assert torch.equal(torch.cat(parts, axis), whole)


@pytest.mark.parametrize(
    ("split", "edges"), [(Split.ROWS, [0, 3, 3, 11]), (Split.COLUMNS, [0, 6, 7])]
)
def test_parts_of_made_up_weights_are_the_whole(split: Split, edges: list[int]) -> None:
    whole = DummyWeights(torch.float32, CPU, Shard(), 3).take("w", (11, 7))
    axis = 0 if split is Split.ROWS else 1
    parts = [
        DummyWeights(torch.float32, CPU, Shard(rank, len(edges) - 1), 3).take(
            "w", (11, 7), split, range(*edge)
        )
        for rank, edge in enumerate(pairwise(edges))
    ]
    assert torch.equal(torch.cat(parts, axis), whole)


@pytest.mark.parametrize("split", [Split.ROWS, Split.COLUMNS])
def test_parts_of_made_up_quantized_weights_are_the_whole(split: Split) -> None:
    plan = read_quant_plan({"quantization_config": {
        "quant_method": "fp8", "weight_block_size": [128, 128]}})  # fmt: skip
    assert plan is not None
    axis = 0 if split is Split.ROWS else 1

    def take(shard: Shard, *where: Any) -> torch.Tensor:
        weights = DummyQuantWeights(torch.float32, CPU, shard, 3, plan)
        found = weights.take_quantized("w.weight", (192, 192), *where)
        assert found is not None
        return found.dequantized(torch.float32)

    edges = pairwise([0, 64, 160, 192])
    parts = [take(Shard(i, 3), split, range(*edge)) for i, edge in enumerate(edges)]
    assert torch.equal(torch.cat(parts, axis), take(Shard()))


def spec_of(divided: ModuleType, kind: str, **changes: Any) -> Any:
    model_class, config = divided.MODELS[kind]
    return model_class.describe({**config, **changes})


def test_what_a_rank_serves(divided: ModuleType) -> None:
    spec = spec_of(divided, "llama")
    assert [rank_spec(spec, Shard(0, size))[2:4] for size in (1, 2, 4, 8)] == [
        (8, 2), (4, 1), (2, 1), (1, 1),
    ]  # fmt: skip
    latent = spec_of(divided, "deepseek_v3")
    found = rank_spec(latent, Shard(1, 4))
    assert (found.num_heads, found.num_kv_heads, found.latent) == (2, 1, latent.latent)


@pytest.mark.parametrize(
    ("kind", "changes", "size", "whole_experts", "reason"),
    [
        ("llama", {}, 3, False, "it has 8 attention heads, it has 2 heads of keys and values; "
                                "choose a tensor_parallel_size of 1, 2, 4 or 8"),
        ("llama", {"num_key_value_heads": 8, "intermediate_size": 36}, 8, False,
         "its feed-forward width is 36; choose a tensor_parallel_size of 1, 2 or 4"),
        ("llama", {"num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 48}, 4,
         False, "it has 6 attention heads, it has 6 heads of keys and values; choose a "
                "tensor_parallel_size of 1, 2, 3 or 6"),
        ("qwen2_moe", {"shared_expert_intermediate_size": 42, "mlp_only_layers": []}, 4, False,
         "its width of the shared expert is 42; choose a tensor_parallel_size of 1 or 2"),
        ("qwen3_moe", {"moe_intermediate_size": 6}, 4, False, "the width of its experts is 6"),
        ("qwen3_moe", {}, 8, True, "it has 6 experts, and each rank needs one"),
    ],
)  # fmt: skip
def test_ranks_that_do_not_divide(
    divided: ModuleType, kind: str, changes: Any, size: int, whole_experts: bool, reason: str
) -> None:
    spec = spec_of(divided, kind, **changes)
    with pytest.raises(ConfigError) as error:
        check_ranks(spec, size, whole_experts=whole_experts)
    assert f"cannot be divided among {size} ranks: {reason}" in str(error.value)
    for other in rank_counts(spec, whole_experts):
        check_ranks(spec, other, whole_experts=whole_experts)


def test_models_that_do_not_say_so_are_not_divided(divided: ModuleType) -> None:
    spec = spec_of(divided, "llama")._replace(divides=False)
    check_ranks(spec, 1)
    with pytest.raises(ConfigError, match=r"its plugin does not serve parts of it; .* of 1$"):
        check_ranks(spec, 2)


class Joining:
    """Notes who it was joined with."""

    def __init__(self) -> None:
        self.joined: list[Ranks] = []

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        return [] if spec.ranks and spec.ranks.size < 8 else ["too many"]

    def capturable(self) -> bool:
        return True

    def join(self, ranks: Ranks, device: torch.device) -> None:
        self.joined.append(ranks)


class Plugin(KernelPlugin):
    def __init__(self, **operations: Any) -> None:
        super().__init__(PolicyConfig())
        self._operations = operations

    def operations(self) -> Any:
        return self._operations


def table(ranks: Ranks | None, *plugins: KernelPlugin) -> Any:
    named = [(f"plugin {i}", plugin) for i, plugin in enumerate(plugins)]
    return bind(named, OpSpec(torch.float32, 64, 16, 100, ranks), [KV], CPU)


def plain() -> dict[str, Any]:
    """The operations of torch but for those of ranks."""
    offered = TorchKernels(PolicyConfig()).operations()
    return {name: each for name, each in offered.items() if name not in RANK_OPERATIONS}


def test_collectives_are_bound_where_there_are_ranks() -> None:
    sums, gathers = Joining(), Joining()
    plugin = Plugin(**plain(), all_reduce=sums, all_gather=gathers)
    alone = table(None, plugin)
    assert not COLLECTIVES & alone.owners.keys() and alone.operations.all_reduce is None
    assert not sums.joined and not gathers.joined
    ranks = Ranks(1, 2, "a group")
    found = table(ranks, plugin)
    assert found.operations.all_reduce is sums and found.operations.all_gather is gathers
    assert sums.joined == gathers.joined == [ranks]


def test_ranks_need_collectives() -> None:
    with pytest.raises(ConfigError, match=r"no kernel .* serves 'all_reduce'"):
        table(Ranks(0, 2), Plugin(**plain()))
    many = Plugin(**plain(), all_reduce=Joining(), all_gather=Joining())
    with pytest.raises(ConfigError, match="too many"):
        table(Ranks(0, 8), many)
    table(None, Plugin(**plain()))


def test_parts_are_drawn_by_whoever_draws() -> None:
    """Its draws need not be those of another."""
    first = Plugin(sample_part=Joining(), all_reduce=Joining(), all_gather=Joining())
    found = table(Ranks(0, 2), first, Plugin(**plain()))
    assert found.operations.sample_part is None and found.owners["sample"] == "plugin 1"
    (passed,) = [each for each in found.passed if each.operation == "sample_part"]
    assert passed.reasons == ("'plugin 1' serves sample, and its draws are its own",)
    alone = table(None, first, Plugin(**plain())).passed
    assert "sample_part" not in {each.operation for each in alone}


def test_one_rank_has_no_work_beside(divided: ModuleType, tmp_path: Path) -> None:
    ops = divided.operations()
    assert summed(ops, Shard()) is ops
    with pytest.raises(ModelError, match=r"2 ranks: .* 'all_reduce' and 'all_gather'"):
        summed(ops, Shard(0, 2))
    folder = divided.write(tmp_path, "llama")
    config = json.loads((folder / "config.json").read_text())
    whole = divided.run(folder, ops, Shard())
    assert whole.bytes_taken == 4 * spec_of(divided, "llama").num_parameters
    assert whole.logits_TV.shape[1] == config["vocab_size"]
