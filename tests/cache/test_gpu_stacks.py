"""On a GPU: whatever a stack keeps, finds, encodes or moves, answers are those of the plain one."""

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psutil
import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core import assemble
from jackfield.core.engine.metrics import Metrics
from jackfield.core.executors.single import SingleDevice
from jackfield.core.kv.cache_metrics import CacheMetrics
from jackfield.core.kv.transfers import Transfer, TransferKind

pytestmark = pytest.mark.gpu
FOLDER = Path(__file__).parent.parent / "data" / "tiny_qwen3"
DEVICE = "cuda"
ROOMY, TIGHT = 320, 12
MOST_TOKENS = 24
ROUNDS = 20
WARM_UP, CYCLES = 20, 200
SLOTS = 4
RESIDENT_GROWTH = 8 * 2**20
"""Bytes that a process may grow by meanwhile, for its allocator and its records."""
GREEDY = SamplingParams(temperature=0, max_tokens=MOST_TOKENS, ignore_eos=True, detokenize=False)
Prompts = list[dict[str, list[int]]]
Tokens = list[list[list[int]]]


class GpuStack(NamedTuple):
    """One combination. tiers: "device", "host", or "disk" in place of most of the host's memory."""

    identity: str | None = None
    tiers: str = "device"
    num_blocks: int = ROOMY
    overlap: int | None = None
    format: str | None = None
    chunk: int = 64

    def toml(self, folder: Path) -> str:
        """As a configuration file."""
        parts = ("paged", self.identity, self.format and "fp8", self.tiers != "device" and "swap")
        lines = [f"cache.stack = {json.dumps([part for part in parts if part])}"]
        lines += [f"cache.num_blocks = {self.num_blocks}", "cache.paged.block_size = 8"]
        lines.append(f"engine.max_num_batched_tokens = {self.chunk}")
        if self.overlap is not None:
            lines.append(f"engine.overlap = {self.overlap}")
        if self.format:
            lines.append(f'cache.fp8.format = "{self.format}"')
        if self.tiers != "device":
            lines.append(f'cache.swap.memory = "{32 if self.tiers == "disk" else 512}KiB"')
            lines.append("cache.swap.clean_share = 0.5")
        if self.tiers == "disk":
            lines += ['cache.swap.disk = "1MiB"', f"cache.swap.folder = {json.dumps(str(folder))}"]
            lines.append("cache.swap.host_clean_share = 0.5")
        return "\n".join(lines)

    def __str__(self) -> str:
        return "-".join(map(str, self))


STACKS = [
    GpuStack(identity, tiers, num_blocks, overlap, chunk=7 if num_blocks == ROOMY else 64)
    for identity, tiers, num_blocks, overlap in product(
        (None, "prefix", "radix"), ("device", "host", "disk"), (ROOMY, TIGHT), (0, 1, 2)
    )
]
ENCODED = [
    GpuStack(identity, tiers, TIGHT, 1, format)
    for format, (identity, tiers) in product(
        ("e4m3", "int8"), (("prefix", "device"), (None, "host"), ("radix", "disk"))
    )
]


@pytest.fixture(scope="module", autouse=True)
def exact_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def prompts(seed: int = 0) -> Prompts:
    """Many that begin alike, of lengths around the edges of blocks, some of them twice."""
    random = Random(seed)
    common = [random.randrange(3, 250) for _ in range(48)]
    shapes = ((24, 3), (45, 6), (32, 0), (16, 9), (47, 1), (32, 5), (0, 20), (8, 0))
    found = [
        common[:shared] + [random.randrange(3, 250) for _ in range(own)] for shared, own in shapes
    ]
    return [{"prompt_token_ids": ids} for ids in (*found, *found[:3])]


def params(count: int) -> list[SamplingParams]:
    """Every third request has four answers."""
    several = GREEDY.with_(n=4, temperature=0.7, seed=7)
    return [several if index % 3 == 2 else GREEDY for index in range(count)]


def start(folder: Path, stack: GpuStack) -> LLM:
    folder.mkdir(exist_ok=True)
    file = folder / "stack.toml"
    file.write_text(stack.toml(folder / "tier"))
    options: dict[str, Any] = {"load_format": "dummy", "skip_tokenizer_init": True}
    return LLM(
        FOLDER, config=file, device=DEVICE, dtype="float32", max_model_len=128, max_num_seqs=6,
        **options,
    )  # fmt: skip


def always_load(llm: LLM) -> None:
    """Whether computing so little again would be faster or not."""
    mover: Any = llm.assembly.engine._mover
    mover._loader._recompute_seconds = lambda num_tokens: None


def ask(llm: LLM, asked: Prompts, how: Sequence[SamplingParams] | SamplingParams) -> Tokens:
    answers = llm.generate(asked, how, use_tqdm=False)
    return [[list(one.token_ids) for one in answer.outputs] for answer in answers]


class Answered(NamedTuple):
    """Tokens of all answers in two rounds, and what was counted."""

    tokens: Tokens
    metrics: Metrics
    cache: CacheMetrics


def answer(folder: Path, stack: GpuStack) -> Answered:
    """Two rounds, so that the second finds what is left of the first."""
    with start(folder, stack) as llm:
        always_load(llm)
        asked = prompts()
        tokens = [one for _ in range(2) for one in ask(llm, asked, params(len(asked)))]
        engine = llm.assembly.engine
        engine.check()
        return Answered(tokens, engine.metrics, engine.cache_metrics)


def check_moved(stack: GpuStack, found: Answered) -> None:
    """What the stack is for has happened."""
    cache = found.cache
    if stack.num_blocks == TIGHT:
        assert found.metrics.preemptions >= len(prompts())
    if stack.identity and stack.num_blocks == ROOMY:
        assert cache.hit_tokens > cache.queried_tokens / 3
    if stack.tiers != "device" and stack.num_blocks == TIGHT:
        assert cache.stored["host"] > 0 and sum(cache.loaded.values()) > 0
    if stack.tiers == "disk" and stack.num_blocks == TIGHT:
        assert cache.stored["disk"] > 0
    assert not cache.failed_transfers and not cache.late_transfers


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return answer(tmp_path_factory.mktemp("plain"), GpuStack(chunk=512)).tokens


@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_same_tokens(stack: GpuStack, expected: Tokens, tmp_path: Path) -> None:
    found = answer(tmp_path, stack)
    assert found.tokens == expected
    assert all(len(one) == MOST_TOKENS for answers in found.tokens for one in answers)
    check_moved(stack, found)


@pytest.mark.parametrize("stack", ENCODED, ids=str)
def test_same_tokens_with_the_same_encoding(
    stack: GpuStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, since a stored number that is rounded the other way would be another one."""
    plain = GpuStack(format=stack.format, chunk=512)
    monkeypatch.setattr(assemble, "choose_dtype", lambda *_: torch.float64)
    found = answer(tmp_path / "found", stack)
    assert found.tokens == answer(tmp_path / "plain", plain).tokens
    check_moved(stack, found)


@contextmanager
def slow_writes(llm: LLM, cycles: int) -> Iterator[None]:
    """The GPU sleeps before keys and values are written, so that steps end late."""
    attention: Any = llm.assembly.loaded.table.operations.attention
    write = attention.write

    def late(*arguments: Any) -> None:
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        write(*arguments)

    attention.write = late
    yield
    del attention.write


@pytest.mark.parametrize("overlap", [1, 2])
@pytest.mark.parametrize("identity", [None, "radix"])
@pytest.mark.parametrize("cycles", [0, 1_000_000])
def test_no_copy_is_stale_in_many_rounds(
    identity: str | None, overlap: int, cycles: int, tmp_path: Path
) -> None:
    """Chunks that sample nothing leave the engine ahead of the GPU while blocks are ordered."""
    stack = GpuStack(identity, "disk", TIGHT, overlap, chunk=16)
    plain = start(tmp_path / "plain", GpuStack(chunk=512))
    moving = start(tmp_path / "moving", stack)
    always_load(moving)
    with plain, moving, slow_writes(moving, cycles):
        for number in range(ROUNDS if not cycles else ROUNDS // 4):
            asked = prompts(1 + number)
            assert ask(moving, asked, GREEDY) == ask(plain, asked, GREEDY), f"round {number}"
        cache = moving.assembly.engine.cache_metrics
        assert cache.stored["host"] > ROUNDS and sum(cache.loaded.values()) > ROUNDS
        moving.assembly.engine.check()


def test_nothing_is_left_on_the_card(tmp_path: Path) -> None:
    """Once it is closed, although somebody still holds the engine, and even if others still run.

    What libraries keep for each stream that they were called on is kept by the process: as much as
    the first engine needed, for as many as lived at the same time.
    """
    start(tmp_path, GpuStack()).close()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for stack in (GpuStack("radix", "host", TIGHT), GpuStack(), GpuStack("prefix", chunk=512)):
        llm = start(tmp_path, stack)
        assert torch.cuda.memory_allocated() > before
        ask(llm, prompts(), GREEDY)
        assert stack.tiers == "device" or llm.assembly.engine.cache_metrics.stored["host"] > 0
        llm.close()
        gc.collect()
        assert torch.cuda.memory_allocated() == before, f"after {stack}"


def test_closing_an_engine_leaves_others_alone(tmp_path: Path) -> None:
    """Graphs hold addresses of memory that libraries keep; that of one engine goes when it ends."""
    kept = start(tmp_path, GpuStack("radix"))
    expected = ask(kept, prompts(), GREEDY)
    for _ in range(3):
        with start(tmp_path, GpuStack()) as other:
            assert ask(other, prompts(), GREEDY) == expected
        del other
        gc.collect()
        # Whatever was given back is written over.
        rubbish = [torch.full((2**20,), float("nan"), device=DEVICE) for _ in range(64)]
        assert ask(kept, prompts(), GREEDY) == expected
        del rubbish
    kept.close()


def test_memory_does_not_grow(tmp_path: Path) -> None:
    """All blocks of the pool go to the host and come back, again and again."""
    with start(tmp_path, GpuStack("radix", "disk", TIGHT)) as llm:
        process = psutil.Process()
        for cycle in range(WARM_UP + CYCLES):
            if cycle == WARM_UP:
                before = process.memory_info().rss, torch.cuda.memory_allocated()
            swap(llm.assembly.loaded.executor, 1 + 2 * TIGHT * cycle)
        assert torch.cuda.memory_allocated() == before[1]
        assert process.memory_info().rss - before[0] < RESIDENT_GROWTH


def swap(executor: SingleDevice, number: int) -> None:
    """One cycle. Four slots are all that the host has. number: of the first transfer."""
    for kind in (TransferKind.STORE, TransferKind.LOAD) * (TIGHT // SLOTS):
        executor.transfer(
            [Transfer(number + i, kind, "host", i, i, "", False) for i in range(SLOTS)]
        )
        number, missing = number + SLOTS, SLOTS
        while missing:
            executor.await_transfer(1.0)
            ends = executor.transferred()
            assert not any(end.error for end in ends)
            missing -= len(ends)


def test_serving_does_not_grow(tmp_path: Path) -> None:
    """Blocks are stored in every round, and given up again."""
    with start(tmp_path, GpuStack("radix", "disk", TIGHT)) as llm:
        always_load(llm)
        cache, process = llm.assembly.engine.cache_metrics, psutil.Process()
        ask(llm, prompts(), GREEDY)
        first, allocated = sum(cache.stored.values()), torch.cuda.memory_allocated()
        resident = process.memory_info().rss
        while sum(cache.stored.values()) < first + CYCLES:
            ask(llm, prompts(), GREEDY)
        assert torch.cuda.memory_allocated() <= allocated
        assert process.memory_info().rss - resident < RESIDENT_GROWTH


def test_the_pool_leaves_what_a_step_takes(tmp_path: Path) -> None:
    """The largest step is run before the pool is sized; with swap it has its buffer, too."""
    stack = GpuStack("prefix", "host", 0).toml(tmp_path).replace("cache.num_blocks = 0\n", "")
    (tmp_path / "sized.toml").write_text(stack.replace("512KiB", "64MiB"))
    with LLM(
        FOLDER, config=tmp_path / "sized.toml", load_format="dummy", skip_tokenizer_init=True,
        device=DEVICE, gpu_memory_utilization=0.05, max_num_seqs=16,
    ) as llm:  # fmt: skip
        loaded = llm.assembly.loaded
        assert loaded.num_blocks > 0
        ask(llm, prompts(), GREEDY)
        total = torch.cuda.get_device_properties(0).total_memory
        assert torch.cuda.max_memory_reserved() < 0.05 * total
