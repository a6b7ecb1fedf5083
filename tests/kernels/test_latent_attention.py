"""Latent attention, against dense products with the keys and values of each head."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api import KvEncoding, KvScales, KvSpec, LatentHeads, LatentSizes
from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.cpu import CpuKernels
from jackfield.plugins.kernels.torch_ops import attention_step, latent
from jackfield.plugins.kernels.torch_ops.attention import TorchAttention
from jackfield.plugins.kernels.torch_ops.encoding import restore, store

HEAD, VALUE = 24, 16
SIZES = LatentSizes(VALUE, HEAD - VALUE, plain=12, value=20)
Make = Callable[..., Any]
LENS = {
    "decodes": ([1, 15, 16, 17, 33, 100], None),
    "prompts": ([1, 15, 16, 17, 40], [1, 15, 16, 17, 40]),
    "mixed": ([5, 40, 60, 33, 17], [1, 1, 20, 2, 16]),
}


@pytest.fixture
def make(make_scene: Make) -> Make:
    def make_latent(lens: list[int], query_lens: list[int] | None, **settings: Any) -> Any:
        scene = make_scene(
            lens, query_lens, **{"heads": (4, 1), "head_dim": HEAD, "block_size": 4, **settings}
        )
        scene.spec = scene.spec._replace(latent=SIZES)
        scene.values = [keys[..., :VALUE] for keys in scene.keys]
        return scene

    return make_latent


def run(scene: Any, scales: KvScales | None = None) -> Tensor:
    attention = TorchAttention()
    layer = scene.layer(attention, scales)
    new = zip(scene.keys, scene.query_lens, strict=True)
    k_TKH = torch.cat([keys[len(keys) - count :] for keys, count in new])
    q_TNH = torch.cat(scene.q)
    step = attention.prepare(scene.batch())
    attention.write(k_TKH, k_TKH[..., :VALUE], layer, step)
    out_TNH = torch.full((len(q_TNH), q_TNH.shape[1], VALUE), float("nan"), dtype=q_TNH.dtype)
    return attention.forward(q_TNH, layer, step, out_TNH)


def assert_right(scene: Any) -> None:
    torch.testing.assert_close(run(scene).double(), scene.reference(), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("window", [None, 1, 7, 20])
@pytest.mark.parametrize("name", LENS)
@pytest.mark.parametrize("together", [False, True])
def test_all_kinds_of_slices(make: Make, name: str, window: int | None, together: bool) -> None:
    assert_right(make(*LENS[name], window=window, together=together))


def test_prompts_in_pieces(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 7 tokens, and of one where there is no room for a single one."""
    for room in (4 * 40 * 4 * 7, 1):
        monkeypatch.setattr(latent, "ROOM", room)
        assert_right(make([40, 40, 33], [40, 25, 33]))
        assert_right(make([40, 33], [33, 20], window=9))


def test_long_decodes_are_read_where_they_lie(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_step, "SHORT", 8)
    monkeypatch.setattr(attention_step, "LARGE", 0)
    assert_right(make(*LENS["decodes"], together=True))
    assert_right(make(*LENS["mixed"], together=True))


def test_decodes_in_groups(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_step, "ROOM", 2 * 100 * HEAD * 4)
    assert_right(make(*LENS["decodes"]))


@pytest.mark.parametrize("name", LENS)
def test_bfloat16(make: Make, name: str) -> None:
    scene = make(*LENS[name], dtype=torch.bfloat16)
    found, right = run(scene), scene.reference()
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, right.to(torch.bfloat16), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("name", LENS)
def test_absorbed_heads_are_those_that_are_expanded(make: Make, name: str) -> None:
    scene, attention = make(*LENS[name]), TorchAttention()
    layer, step = scene.layer(attention), attention.prepare(scene.batch())
    heads = LatentHeads.of(torch.randn(4, SIZES.plain + SIZES.value, VALUE), SIZES.value)
    new = zip(scene.keys, scene.query_lens, strict=True)
    stored_T1H = torch.cat([keys[len(keys) - count :] for keys, count in new])
    attention.write(stored_T1H, stored_T1H[..., :VALUE], layer, step)
    q_TNQ = torch.randn(len(stored_T1H), 4, SIZES.query)
    out_TNV = torch.full((len(q_TNQ), 4, SIZES.value), float("nan"))
    found = attention.forward_latent(q_TNQ, heads, layer, step, out_TNV)
    expanded = [heads.expanded(keys[:, 0]) for keys in scene.keys]
    k_TNQ, v_TNV = expanded[0]
    latent_TR = scene.keys[0][:, 0, :VALUE]
    assert torch.equal(k_TNQ[..., SIZES.plain :], scene.keys[0][..., VALUE:].expand(-1, 4, -1))
    for head in range(4):
        value_VR, key_PR = heads.merged_NXR[head].split([SIZES.value, SIZES.plain])
        torch.testing.assert_close(k_TNQ[:, head, : SIZES.plain], latent_TR @ key_PR.t())
        torch.testing.assert_close(v_TNV[:, head], latent_TR @ value_VR.t())
    scene.spec = scene.spec._replace(num_kv_heads=4)
    scene.q = list(q_TNQ.split(scene.query_lens))
    scene.keys, scene.values = (list(part) for part in zip(*expanded, strict=True))
    torch.testing.assert_close(found.double(), scene.reference(), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
@pytest.mark.parametrize("name", LENS)
def test_values_are_encoded_as_part_of_the_keys(make: Make, name: str, dtype: torch.dtype) -> None:
    """With the scale of the keys, whatever that of values is."""
    encoding = KvEncoding("8 bits", dtype, 127.0)
    scales = KvScales(torch.tensor([0.03]), torch.tensor([7.0]))
    scene = make(*LENS[name], encoding=encoding)
    found = run(scene, scales)
    scene.keys = [restore(store(k, scales.k_K, encoding), scales.k_K) for k in scene.keys]
    scene.values = [keys[..., :VALUE] for keys in scene.keys]
    torch.testing.assert_close(found.double(), scene.reference(), atol=2e-5, rtol=2e-5)


def test_a_block_holds_keys_only() -> None:
    spec = KvSpec(128, 1, 576, torch.bfloat16, 16, latent=LatentSizes(512, 64, 128, 128))
    (tensor,) = TorchAttention().layout(spec).tensors
    assert tensor.name == "latent"
    assert TorchAttention().layout(spec).bytes_per_block == 16 * 576 * 2
    encoded = spec._replace(encoding=KvEncoding("fp8_e4m3", torch.float8_e4m3fn, 448.0))
    assert TorchAttention().layout(encoded).bytes_per_block == 16 * 576


def test_the_kernel_in_c_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    attention = CpuKernels(PolicyConfig()).operations()["attention"]
    spec = KvSpec(4, 1, 64, torch.float32, 16)
    latent = spec._replace(latent=LatentSizes(48, 16, 32, 32))
    found = attention.unsupported(latent, torch.device("cpu"))
    before = attention.unsupported(spec, torch.device("cpu"))
    assert [reason for reason in found if "latent attention" in reason] == found[len(before) :]
    assert len(found) == len(before) + 1


def test_room_is_for_keys_only(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_step, "ROOM", 3 * 100 * HEAD * 4)
    scene = make(*LENS["decodes"])
    geometry = attention_step.Geometry(scene.num_blocks, 4, 1, HEAD, torch.float32, None, 1)
    groups = TorchAttention().prepare(scene.batch()).plan(geometry).gathered
    assert [len(group.room) for group in groups] == [1, 1]
    assert [group.slices for group in groups] == [3, 3]
