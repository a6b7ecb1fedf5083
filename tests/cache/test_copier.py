"""Blocks are copied bit by bit, whatever tensors the layout keeps them in."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from jackfield.core.api import KvLayer, KvLayout, KvSpec, KvTensor, LayerGroup
from jackfield.core.kv.copier import BlockCopier
from jackfield.core.kv.storage import bytes_per_block
from jackfield.core.kv.transfers import BlockCopy
from jackfield.plugins.kernels.torch_ops.attention import TorchAttention

CPU = torch.device("cpu")
NUM_BLOCKS = 9
DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.uint8, torch.bool, torch.int64,
)  # fmt: skip


def torch_layout(dtype: torch.dtype) -> KvLayout:
    return TorchAttention().layout(KvSpec(4, 2, 8, dtype, 4))


def odd_layout(dtype: torch.dtype) -> KvLayout:
    """A packed latent, one flag per position, and one number per block: no pair of anything."""
    return KvLayout(
        (
            KvTensor("latent", (3, 5), dtype),
            KvTensor("flags", (7,), torch.bool),
            KvTensor("seal", (), torch.float64),
        )
    )


def empty(layout: KvLayout, device: torch.device) -> KvLayer:
    tensors = {
        part.name: torch.zeros((NUM_BLOCKS, *part.shape), dtype=part.dtype, device=device)
        for part in layout.tensors
    }
    return KvLayer(tensors, 1.0)


def pool(layouts: Sequence[KvLayout], num_layers: int = 4) -> list[KvLayer]:
    """Layers that take turns with the layouts, filled with bytes that are all different."""
    layers = [empty(layouts[number % len(layouts)], CPU) for number in range(num_layers)]
    generator = torch.Generator().manual_seed(5)
    for layer in layers:
        for tensor in layer.tensors.values():
            raw = raw_bytes(tensor)
            high = 2 if tensor.dtype == torch.bool else 256
            raw.copy_(torch.randint(high, raw.shape, dtype=torch.uint8, generator=generator))
    return layers


def raw_bytes(tensor: Tensor) -> Tensor:
    return tensor.view(len(tensor), -1).view(torch.uint8)


def content(layers: Sequence[KvLayer], block: int) -> bytes:
    """What a block is: the bytes of all its tensors, one after another."""
    tensors = [tensor for layer in layers for tensor in layer.tensors.values()]
    return b"".join(bytes(raw_bytes(tensor)[block].tolist()) for tensor in tensors)


def contents(layers: Sequence[KvLayer]) -> list[bytes]:
    return [content(layers, block) for block in range(NUM_BLOCKS)]


def buffer(copier: BlockCopier, rows: int) -> Tensor:
    return torch.full((rows, copier.block_bytes), 0xA5, dtype=torch.uint8)


LAYOUTS = [
    pytest.param(make(dtype), id=f"{make.__name__}-{dtype}")
    for make in (torch_layout, odd_layout)
    for dtype in DTYPES
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_block_goes_to_the_host_and_comes_back_elsewhere(layout: KvLayout) -> None:
    layers = pool([layout])
    copier, before = BlockCopier(layers, CPU), contents(layers)
    rows = buffer(copier, 3)
    copier.gather([7, 0, 4], rows)
    assert [bytes(row.tolist()) for row in rows] == [before[7], before[0], before[4]]
    assert contents(layers) == before
    copier.scatter([1, 7, 8], rows)
    expected = list(before)
    expected[1], expected[7], expected[8] = before[7], before[0], before[4]
    assert contents(layers) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_are_copied_inside_the_pool(layout: KvLayout) -> None:
    layers = pool([layout])
    before = contents(layers)
    BlockCopier(layers, CPU).copy([BlockCopy(2, 5), BlockCopy(2, 0), BlockCopy(8, 1)])
    expected = list(before)
    expected[5], expected[0], expected[1] = before[2], before[2], before[8]
    assert contents(layers) == expected


def test_all_sources_are_read_before_the_first_target_is_written() -> None:
    layers = pool([torch_layout(torch.bfloat16)])
    before = contents(layers)
    BlockCopier(layers, CPU).copy([BlockCopy(0, 1), BlockCopy(1, 2), BlockCopy(2, 0)])
    assert contents(layers)[:3] == [before[2], before[0], before[1]]


def test_one_block_is_not_the_target_of_two_copies() -> None:
    copier = BlockCopier(pool([torch_layout(torch.float16)]), CPU)
    with pytest.raises(AssertionError, match="over one"):
        copier.copy([BlockCopy(0, 1), BlockCopy(2, 1)])


def test_layers_may_have_different_layouts() -> None:
    layouts = [torch_layout(torch.bfloat16), odd_layout(torch.float8_e4m3fn)]
    layers = pool(layouts)
    copier, before = BlockCopier(layers, CPU), contents(layers)
    assert copier.block_bytes == bytes_per_block([LayerGroup((0, 2)), LayerGroup((1, 3))], layouts)
    rows = buffer(copier, 2)
    copier.gather([3, 6], rows)
    copier.scatter([6, 3], rows)
    before[3], before[6] = before[6], before[3]
    assert contents(layers) == before


@pytest.mark.parametrize(
    ("layout", "word"),
    [
        (torch_layout(torch.bfloat16), torch.int64),
        (KvLayout((KvTensor("a", (5,), torch.float32),)), torch.int32),
        (KvLayout((KvTensor("a", (4,), torch.int8), KvTensor("b", (3,), torch.half))), torch.int16),
        (odd_layout(torch.float32), torch.uint8),
    ],
)
def test_bytes_move_in_the_widest_words(layout: KvLayout, word: torch.dtype) -> None:
    copier = BlockCopier(pool([layout]), CPU)
    room = copier.room(2, CPU)
    assert (room.dtype, room.nbytes) == (word, 2 * copier.block_bytes)


def test_rows_may_be_part_of_a_larger_buffer() -> None:
    layers = pool([odd_layout(torch.float32)])
    copier, before = BlockCopier(layers, CPU), contents(layers)
    large = buffer(copier, 5)
    copier.gather([4, 2], large[1:3])
    assert [bytes(row.tolist()) for row in large[1:3]] == [before[4], before[2]]
    assert bool((large[[0, 3, 4]] == 0xA5).all())


def test_copies_work_in_any_thread_mode() -> None:
    """Steps run in inference mode, the threads of the tiers do not."""
    layers = pool([torch_layout(torch.float32)])
    copier = BlockCopier(layers, CPU)
    with torch.inference_mode():
        copier.copy([BlockCopy(0, 1)])
        rows = buffer(copier, 1)
        copier.gather([0], rows)
    copier.scatter([2], rows)
    assert content(layers, 0) == content(layers, 1) == content(layers, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [torch_layout(torch.bfloat16), odd_layout(torch.float32)])
def test_on_a_gpu_copies_wait_for_the_steps_before_them(layout: KvLayout) -> None:
    """What a slow step writes is stored, and what it reads is not loaded over."""
    device, source = torch.device("cuda"), pool([layout])
    layers = [empty(layout, device) for _ in source]
    copier, expected = BlockCopier(layers, device), contents(source)
    rows = buffer(copier, NUM_BLOCKS).pin_memory()
    slow_step(layers, source)
    copier.gather(range(NUM_BLOCKS), rows, copier.mark())
    assert [bytes(row.tolist()) for row in rows] == expected
    seen = [empty(layout, device) for _ in source]
    slow_step(seen, layers)
    copier.scatter([3, 4], rows[:2], copier.mark())
    assert contents(seen) == expected
    assert contents(layers) == [*expected[:3], *expected[:2], *expected[5:]]
    copier.copy([BlockCopy(7, 8)])
    assert content(layers, 8) == expected[7]


def slow_step(into: Sequence[KvLayer], source: Sequence[KvLayer]) -> None:
    torch.cuda._sleep(200_000_000)
    for mine, theirs in zip(into, source, strict=True):
        for name, tensor in mine.tensors.items():
            there = theirs.tensors[name]
            there = there.pin_memory() if there.device.type == "cpu" else there
            tensor.copy_(there, non_blocking=True)
