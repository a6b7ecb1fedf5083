"""Operations by themselves: which, at which sizes, against what, and who serves them."""

import json
from typing import Any

import pytest
import torch

from jackfield.core.api import ConfigError, PolicyConfig
from jackfield.core.bench.kernels.attention import (
    block_tables,
    decode_batch,
    filled_layers,
    prompt_batch,
)
from jackfield.core.bench.kernels.case import Case, OperationTime, Work
from jackfield.core.bench.kernels.measure import PARTS, measure_kernels
from jackfield.core.bench.kernels.sampling import MANNERS, sample_batch
from jackfield.core.bench.kernels.sizes import FULL, QUICK, DecodeSize
from jackfield.core.bench.kernels.step_inputs import BLOCKS, news_of, room_for, state_of
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.bench.kernels.timing import seconds_per_call
from jackfield.core.bench.machine import Ceilings
from jackfield.core.bench.shapes import SHAPES
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.host.sources import Resolved, load_config
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.server.bench_report import kernel_lines
from jackfield.server.cli import main

CPU = torch.device("cpu")
CEILINGS = Ceilings(read=1e9, copy=2e9, flops=1e12)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jackfield.core.bench.kernels.measure.measure_ceilings", lambda *_: CEILINGS
    )
    monkeypatch.setitem(SHAPES, "small", {  # type: ignore[arg-type]
        **SHAPES["qwen3-tiny"], "hidden_size": 64, "intermediate_size": 96, "head_dim": 32,
        "vocab_size": 512, "num_hidden_layers": 2, "torch_dtype": "float32",
    })  # fmt: skip


def configured(*stack: str) -> Resolved:
    return load_config(flags={"kernel.stack": list(stack) or ["torch"], "engine.threads": 1})


@pytest.fixture
def subject() -> KernelSubject:
    return KernelSubject.of(configured(), SHAPES["small"], QUICK)


def test_every_operation_is_timed() -> None:
    result = measure_kernels(configured(), "small", SilentProgress())
    found = {one.operation for one in result.operations}
    assert found >= {
        "attention", "rms_norm", "add_rms_norm", "silu_mul", "rope", "linear", "sample",
    }  # fmt: skip
    for one in result.operations:
        assert one.problem is None, one
        assert one.us is not None and one.us > 0 and one.owner == "torch"
        assert one.bytes is not None and one.flops is not None and not one.captured
        ideal = max(one.bytes / 2e9, one.flops / 1e12)
        assert one.share == pytest.approx(1e6 * ideal / one.us, rel=0.05, abs=1e-3)
    document = json.loads(json.dumps(result.as_dict()))
    assert document["read_bytes_per_second"] == 1e9
    assert len(document["operations"]) == len(result.operations)
    assert document["stack"]["kernel"] == ["torch"]
    text = kernel_lines(result)
    assert "qkv 16x64x256" in text and "decode 4x16..64 float32" in text
    assert result.unserved == [
        "qk_norm_rope_write", "quant_matmul_silu_mul", "route", "step_inputs",
    ]  # fmt: skip
    assert "nobody serves step_inputs" in text


def test_bytes_and_operations_by_hand(subject: KernelSubject) -> None:
    works = {
        (case.operation, case.size): case.build()
        for part in ("elementwise", "linear", "sample")
        for case in PARTS[part](subject)
    }
    norm = works["rms_norm", "16"]
    assert norm.bytes == 2 * 16 * 64 * 4
    assert works["add_rms_norm", "16"].bytes == 2 * norm.bytes
    assert works["silu_mul", "16"].bytes == 3 * 16 * 96 * 4
    product = works["linear", "down 16x96x64"]
    assert (product.bytes, product.flops) == (4 * (96 * 64 + 16 * (96 + 64)), 2 * 16 * 96 * 64)
    assert works["sample", "4, greedy"].bytes == 4 * 512 * 4
    assert works["attention", "write 16"].bytes == 2 * 16 * 2 * 2 * 32 * 4


def test_attention_counts_what_it_reads(subject: KernelSubject) -> None:
    works = {case.size: case.build() for case in PARTS["attention"](subject)}
    decode = works["decode 1x256 float32"]
    assert decode.bytes == 256 * 2 * 2 * 32 * 4 + 2 * 4 * 32 * 4
    assert decode.flops == 4 * 4 * 32 * 256
    assert works["decode 1x256 fp8_e4m3"].bytes == 256 * 2 * 2 * 32 + 2 * 4 * 32 * 4
    assert works["prompt 64"].flops == 4 * 4 * 32 * 64 * 65 / 2


def test_a_form_that_nobody_reads_has_no_figures(subject: KernelSubject) -> None:
    others = subject._replace(encoded="no kernel of the stack reads fp8_e4m3")
    cases = [case for case in PARTS["attention"](others) if "fp8" in case.size]
    assert {case.owner for case in cases} == {""}
    for case in cases:
        with pytest.raises(ConfigError, match="no kernel of the stack reads fp8_e4m3"):
            case.build()


def test_what_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such thing\nat all")

    monkeypatch.setattr("jackfield.plugins.kernels.torch_ops.rms_norm.TorchRmsNorm.__call__", fail)
    result = measure_kernels(configured(), "small", SilentProgress(), only=["elementwise"])
    problems = {one.operation: one.problem for one in result.operations}
    assert problems["rms_norm"] == "RuntimeError: no such thing"
    assert problems["silu_mul"] is None
    assert "no such thing" in kernel_lines(result)


def test_batches_are_what_attention_wants() -> None:
    lens = [1, 16, 17, 40]
    tables = block_tables(lens, CPU)
    counts = [1, 1, 2, 3]
    used = [block for row, n in zip(tables.tolist(), counts, strict=True) for block in row[:n]]
    assert sorted(used) == list(range(7)) and tables.dtype == torch.int32
    batch = decode_batch(lens, tables, CPU)
    assert batch.slots_T.tolist() == [
        int(tables[i, (n - 1) // 16]) * 16 + (n - 1) % 16 for i, n in enumerate(lens)
    ]
    assert (batch.num_decodes, batch.max_query_len, batch.max_len, batch.prompts) == (4, 1, 40, ())
    prompt = prompt_batch(20, tables[3:], 32, CPU)
    assert prompt.slots_T.tolist() == list(range(32, 52))
    assert prompt.query_start_S1.tolist() == [0, 20] and prompt.lens_S.tolist() == [20]


def test_the_pool_is_filled(subject: KernelSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackfield.core.bench.kernels.attention.FILL_TOKENS", 32)
    kernel = subject.plain.operations.attention
    torch.manual_seed(0)
    layers = filled_layers(subject, kernel, None, 5, 2)
    assert len(layers) == 2
    for layer in layers:
        for tensor in layer.tensors.values():
            assert float(tensor.std()) == pytest.approx(1, abs=0.2)


def test_copies_go_around_the_cache(subject: KernelSubject) -> None:
    many = subject._replace(sizes=FULL)
    assert many.copies(64 * 2**20) == 1
    assert many.copies(10 * 2**20) == 7
    assert many.copies(1) == 128
    made: list[int] = []

    def make() -> Any:
        number = len(made)
        made.append(0)

        def call() -> None:
            made[number] += 1

        return call

    work = many.work(make, 10 * 2**20, capturable=False, bytes=1)
    work.run()
    assert made == [3] * 7 and not work.in_cache
    assert many.work(make, 16, capturable=False, bytes=1).in_cache


def test_the_median_of_rounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    lengths = iter([9.0, 9.0, 1.0, 1.0, 5.0, 5.0, 2.0, 2.0])  # the first round is not timed
    monkeypatch.setattr("jackfield.core.bench.kernels.timing.perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += next(lengths)

    work = Work([call, call], False, 8e9, 1e12, False)
    seconds = seconds_per_call(work, CPU, 1.0)
    assert seconds == 2.0
    row = OperationTime.of(Case("linear", "a", "b", lambda: work), work, seconds, CEILINGS)
    assert (row.share, row.limit, row.us) == (2.0, "memory", 2e6)
    more = work._replace(flops=9e12)
    row = OperationTime.of(Case("linear", "a", "b", lambda: more), more, seconds, CEILINGS)
    assert (row.share, row.limit) == (4.5, "products")


def test_sizes_of_sequences() -> None:
    size = DecodeSize(256, 100, 2048)
    lens = size.lens()
    assert (len(lens), lens[0], lens[-1], size.title) == (256, 100, 2048, "256x100..2048")
    assert DecodeSize(1, 1024, 1024).lens() == [1024]
    assert DecodeSize(20, 250, 250).title == "20x250"


def test_manners_tell_what_the_host_knows() -> None:
    batches = [sample_batch(3, manner, CPU) for manner in MANNERS]
    assert [(batch.all_greedy, batch.filtered) for batch in batches] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert batches[2].top_k_R.dtype == torch.int32


def test_step_inputs_are_news_that_make_sense() -> None:
    """What an operation makes of them is what the host would have made."""
    operation = TorchKernels(PolicyConfig()).operations()["step_inputs"]
    news, state, into = news_of(40, CPU), state_of(40, CPU), room_for(40, CPU)
    before = state.tables_PB.clone()
    operation(news, state, 16, into)
    assert into.positions_T.tolist() == news.starts_S.tolist()
    assert into.lens_S.tolist() == [start + 1 for start in news.starts_S.tolist()]
    changed = (state.tables_PB != before).any(1).nonzero().flatten().tolist()
    assert set(changed) <= {0, 16, 32}
    assert state.tables_PB[[0, 16, 32], BLOCKS // 2].tolist() == [0, 1, 2]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ('--set=kernel.stack=["torch"]', "--set=engine.threads=1", "--shape=small")
    assert main(["bench", "kernels", *flags, "--only=sample,linear", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["operation"] for one in document["operations"]} == {"linear", "sample"}
    assert document["model"] == "small"
    for wrong, message in (
        ("--only=smple", "unknown operations 'smple'. Did you mean 'sample'?"),
        ("--shape=qwen4", "unknown shape 'qwen4'"),
    ):
        assert main(["bench", "kernels", *flags, wrong]) == 2
        assert message in capsys.readouterr().err
