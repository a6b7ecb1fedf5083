"""Paged batches and float64 references that every kernel plugin is held against."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import AttnBatch, KernelPlugin, KvLayer, KvSpec, OpSpec, SliceExtent
from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.cpu import CpuKernels
from jackfield.plugins.kernels.torch_ops import TorchKernels

CPU = torch.device("cpu")


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JACKFIELD_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=[TorchKernels, CpuKernels])
def operations(request: pytest.FixtureRequest, kernel_cache: None) -> Mapping[str, Any]:
    plugin: type[KernelPlugin] = request.param
    operations = plugin(PolicyConfig()).operations()
    reasons = operations["rms_norm"].unsupported(OpSpec(torch.float32, 64, 16, 100), CPU)
    if reasons:
        pytest.skip(reasons[0])
    return operations


@dataclass
class Scene:
    """Sequences in a pool whose unused entries are NaN, and one step of them."""

    spec: KvSpec
    lens: list[int]
    query_lens: list[int]
    garbage: int = -1
    together: bool = False
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(1))

    def __post_init__(self) -> None:
        self.q, self.keys, self.values = [], [], []
        for length, count in zip(self.lens, self.query_lens, strict=True):
            self.q.append(self._random(count, self.spec.num_heads))
            self.keys.append(self._random(length, self.spec.num_kv_heads))
            self.values.append(self._random(length, self.spec.num_kv_heads))
        self.tables = self._tables()

    @property
    def scale(self) -> float:
        return self.spec.head_dim**-0.5

    def batch(self) -> AttnBatch:
        starts = [0]
        for count in self.query_lens:
            starts.append(starts[-1] + count)
        decodes = 0
        while decodes < len(self.lens) and self.query_lens[decodes] == 1:
            decodes += 1
        return AttnBatch(
            torch.tensor(starts, dtype=torch.int32),
            torch.tensor(self.lens, dtype=torch.int32),
            self.tables,
            torch.cat([self._slots(i, n) for i, n in enumerate(self.query_lens)]),
            decodes,
            max(self.query_lens),
            max(self.lens),
            tuple(map(SliceExtent, starts[decodes:-1], starts[decodes + 1 :], self.lens[decodes:])),
        )

    def layer(self, attention: Any, scales: KvScales | None = None) -> KvLayer:
        """The pool with the cached positions in place: the step's own are for `write`."""
        tensors = {
            part.name: torch.full((self.num_blocks, *part.shape), float("nan")).to(part.dtype)
            for part in attention.layout(self.spec).tensors
        }
        layer = KvLayer(tensors, self.scale, self.spec.window, scales, self.spec.encoding)
        slots, keys, values = zip(*map(self._cached, range(len(self.lens))), strict=True)
        if any(map(len, slots)):
            step = attention.prepare(self._cached_batch(torch.cat(slots)))
            attention.write(torch.cat(keys), torch.cat(values), layer, step)
        return layer

    def _cached(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Slots, keys and values of what a sequence brings along, as far as it is seen."""
        past, window = self.lens[index] - self.query_lens[index], self.spec.window
        first = 0 if window is None else max(0, past + 1 - window)
        positions, size = torch.arange(first, past), self.spec.block_size
        slots = self.tables[index, positions // size].long() * size + positions % size
        return slots, self.keys[index][first:past], self.values[index][first:past]

    def _cached_batch(self, slots: Tensor) -> AttnBatch:
        starts = torch.tensor([0, len(slots)], dtype=torch.int32)
        lens = torch.tensor([len(slots)], dtype=torch.int32)
        prompts = (SliceExtent(0, len(slots), len(slots)),)
        return AttnBatch(starts, lens, self.tables[:1], slots, 0, len(slots), len(slots), prompts)

    def step_inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of the step as views of one merged projection."""
        recent = [
            tuple(x[i][len(x[i]) - n :].flatten(1) for x in (self.q, self.keys, self.values))
            for i, n in enumerate(self.query_lens)
        ]
        merged = torch.cat([torch.cat(row, 1) for row in recent])
        heads, kv, width = self.spec.num_heads, self.spec.num_kv_heads, self.spec.head_dim
        q, k, v = merged.split([heads * width, kv * width, kv * width], 1)
        tokens = merged.shape[0]
        return q.view(tokens, heads, width), k.view(tokens, kv, width), v.view(tokens, kv, width)

    def reference(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Dense attention, sequence by sequence."""
        return torch.cat([self._dense(index, dtype) for index in range(len(self.lens))])

    def run(self, attention: Any, scales: KvScales | None = None) -> Tensor:
        """What the kernel makes of the step."""
        layer = self.layer(attention, scales)
        q, k, v = self.step_inputs()
        step = attention.prepare(self.batch())
        attention.write(k, v, layer, step)
        out = torch.full((len(q), *q.shape[1:]), float("nan"), dtype=self.spec.dtype)
        return attention.forward(q, layer, step, out)  # type: ignore[no-any-return]

    def _dense(self, index: int, dtype: torch.dtype) -> Tensor:
        length, count = self.lens[index], self.query_lens[index]
        group = self.spec.num_heads // self.spec.num_kv_heads
        q = self.q[index].to(dtype).transpose(0, 1)
        k = self.keys[index].to(dtype).transpose(0, 1).repeat_interleave(group, 0)
        v = self.values[index].to(dtype).transpose(0, 1).repeat_interleave(group, 0)
        scores = q @ k.transpose(1, 2) * self.scale
        key, query = torch.arange(length), torch.arange(length - count, length)[:, None]
        seen = key <= query
        if self.spec.window is not None:
            seen &= key > query - self.spec.window
        return (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v).transpose(0, 1)

    @property
    def num_blocks(self) -> int:
        return sum(-(-length // self.spec.block_size) for length in self.lens) + 3

    def _tables(self) -> Tensor:
        size, window = self.spec.block_size, self.spec.window
        free = torch.randperm(self.num_blocks, generator=self.generator).tolist()
        if self.together:
            free.sort(reverse=True)
        width = -(-max(self.lens) // size) + 2
        tables = torch.full((len(self.lens), width), self.garbage, dtype=torch.int32)
        for index, (length, count) in enumerate(zip(self.lens, self.query_lens, strict=True)):
            first = 0 if window is None else max(0, length - count + 1 - window) // size
            for block in range(first, -(-length // size)):
                tables[index, block] = free.pop()
        return tables

    def _slots(self, index: int, count: int) -> Tensor:
        size, length = self.spec.block_size, self.lens[index]
        positions = torch.arange(length - count, length)
        return self.tables[index, positions // size].long() * size + positions % size

    def _random(self, tokens: int, heads: int) -> Tensor:
        shape = (tokens, heads, self.spec.head_dim)
        return torch.randn(shape, generator=self.generator).to(self.spec.dtype)


@pytest.fixture
def make_scene() -> Callable[..., Scene]:
    """A scene of slices: lengths after the step, and how many tokens of each are in the step.

    together: whether the blocks of each sequence are consecutive.
    """

    def make(
        lens: list[int],
        query_lens: list[int] | None = None,
        *,
        heads: tuple[int, int] = (4, 2),
        head_dim: int = 64,
        dtype: torch.dtype = torch.float32,
        block_size: int = 16,
        window: int | None = None,
        garbage: int = -1,
        together: bool = False,
        encoding: KvEncoding | None = None,
    ) -> Scene:
        spec = KvSpec(*heads, head_dim, dtype, block_size, window, encoding)
        return Scene(spec, lens, query_lens or [1] * len(lens), garbage, together)

    return make
