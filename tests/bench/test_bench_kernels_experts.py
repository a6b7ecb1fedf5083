"""Operations of models that have experts, latent attention or quantized weights, by themselves."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api import ConfigError, QuantWeight, Routing
from jackfield.core.bench.kernels.attention import filled_layers
from jackfield.core.bench.kernels.case import Work
from jackfield.core.bench.kernels.experts import MOST_CAPTURED, choices_of
from jackfield.core.bench.kernels.measure import PARTS, measure_kernels
from jackfield.core.bench.kernels.products import made_up
from jackfield.core.bench.kernels.sizes import FULL, QUICK
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.bench.machine import Ceilings
from jackfield.core.bench.shapes import SHAPES
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.host.sources import Resolved, load_config
from jackfield.plugins.models.blocks.routing import Chosen, route
from jackfield.server.bench_report import kernel_lines
from jackfield.server.cli import main

CEILINGS = Ceilings(read=1e9, copy=2e9, flops=1e12)
SMALLER: Mapping[str, Any] = {"vocab_size": 512, "torch_dtype": "float32"}
SHAPES_OF = {
    "latent": "deepseek-v2-tiny", "mixture": "qwen3-moe-tiny", "few bits": "qwen3-moe-tiny-awq32",
    "fp8": "deepseek-v2-tiny-fp8block",
}  # fmt: skip
BYTES = 4
"""Of a float32."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jackfield.core.bench.kernels.measure.measure_ceilings", lambda *_: CEILINGS
    )
    for name, shape in SHAPES_OF.items():
        monkeypatch.setitem(SHAPES, name, {**SHAPES[shape], **SMALLER})  # type: ignore[arg-type]


def configured(**more: Any) -> Resolved:
    settings = {"kernel.stack": ["torch"], "engine.threads": 1}
    return load_config(
        flags={**settings, **{f"parallel.{name}": value for name, value in more.items()}}
    )


def subject_of(shape: str, **more: Any) -> KernelSubject:
    return KernelSubject.of(configured(**more), SHAPES[shape], QUICK)


def works_of(subject: KernelSubject, *parts: str) -> dict[tuple[str, str], Work]:
    return {
        (case.operation, case.size): case.build() for part in parts for case in PARTS[part](subject)
    }


@pytest.mark.parametrize("shape", SHAPES_OF)
def test_every_operation_is_timed(shape: str) -> None:
    result = measure_kernels(configured(), shape, SilentProgress())
    found = {one.operation for one in result.operations}
    wanted = {"latent": {"linear", "experts", "silu_mul"}, "mixture": {"linear", "experts"},
              "few bits": {"linear", "quant_matmul", "quant_experts"},
              "fp8": {"quant_matmul", "quant_experts", "silu_mul"}}[shape]  # fmt: skip
    assert found >= wanted | {"attention", "rms_norm", "rope", "sample"}
    assert ("quant_matmul" in found) == (shape in ("few bits", "fp8"))
    for one in result.operations:
        assert one.problem is None, one
        assert one.us is not None and one.bytes is not None and one.flops is not None
        ideal = max(one.bytes / 2e9, one.flops / 1e12)
        assert one.share == pytest.approx(1e6 * ideal / one.us, rel=0.05, abs=1e-3)
    assert json.loads(json.dumps(result.as_dict()))["ranks"] == 1
    assert ", 4 of 16 128x64" in kernel_lines(result)


def test_latent_attention_counts_what_it_reads() -> None:
    works = works_of(subject_of("latent"), "attention", "elementwise")
    heads, states = 4 * (32 + 32) * 64, 4 * (48 + 32)
    decode = works["attention", "decode 1x256 float32"]
    assert decode.bytes == BYTES * (256 * 80 + heads + states)
    assert decode.flops == 2 * 4 * (80 + 64) * 256 + 2 * heads
    encoded = works["attention", "decode 1x256 fp8_e4m3"]
    assert encoded.bytes == 256 * 80 + BYTES * (heads + states)
    prompt = works["attention", "prompt 64"]
    assert prompt.flops == 2 * 4 * (48 + 32) * 64 * 65 / 2 + 2 * heads * 64
    assert prompt.bytes == BYTES * (64 * (80 + states) + heads)
    assert works["attention", "write 16"].bytes == BYTES * (2 * 16 * (80 + 4 * 16) + 16 * 16)
    assert works["rope", "16"].bytes == BYTES * (2 * 16 * 5 * 16 + 16 * 16)
    assert works["silu_mul", "16x384"].bytes == BYTES * 3 * 16 * 384
    assert works["silu_mul", "16x128"].bytes == BYTES * 3 * 16 * 128
    assert not [name for name, _ in works if name == "qk_norm_rope_write"]


def test_latent_attention_has_heads_of_each_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the cache would hold what each layer reads anew."""
    subject = subject_of("latent")
    kernel, seen = subject.plain.operations.attention, []
    forward = type(kernel).forward_latent  # type: ignore[attr-defined]

    def watched(self: Any, q: Tensor, heads: Any, layer: Any, *rest: Any) -> Tensor:
        latent = next(iter(layer.tensors.values()))
        seen.append((heads.merged_NXR.data_ptr(), latent.data_ptr()))
        return forward(self, q, heads, layer, *rest)

    monkeypatch.setattr(type(kernel), "forward_latent", watched)
    works_of(subject, "attention")["attention", "decode 1x256 float32"].run()
    assert len(seen) >= subject.spec.num_layers
    assert all(one[0] != other[0] and one[1] != other[1] for one, other in pairwise(seen))


def test_the_pool_holds_normed_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackfield.core.bench.kernels.attention.FILL_TOKENS", 32)
    subject = subject_of("latent")
    layers = filled_layers(subject, subject.plain.operations.attention, None, 5, 2)
    assert len(layers) == 2
    for layer in layers:
        [latent] = layer.tensors.values()
        assert latent.shape[-1] == 80 and latent.numel() == 5 * 16 * 80
        norms = latent[..., :64].square().mean(-1).sqrt()
        torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-3, rtol=0)


@pytest.mark.parametrize("shape", ["latent", "mixture"])
def test_experts_count_those_that_are_chosen(shape: str) -> None:
    subject = subject_of(shape)
    works = works_of(subject, "experts")
    one = works["experts", "1, 4 of 16 128x64"]
    expert = 3 * 128 * 64
    assert one.bytes == BYTES * (4 * expert + 2 * 128)
    assert one.flops == 2 * 4 * expert
    many = works["experts", "16, 4 of 16 128x64"]
    [layer, *_] = subject.outline.experts
    distinct = [len(chosen.distinct) for chosen in choices_of(layer, 16, len(many.calls))]
    assert 14 < sum(distinct) / len(distinct) <= 16
    mean = sum(distinct) / len(distinct)
    assert many.bytes == pytest.approx(BYTES * (mean * expert + 2 * 16 * 128))
    assert many.flops == 16 * one.flops


def test_experts_of_few_bits_count_as_they_are_held() -> None:
    works = works_of(subject_of("few bits"), "experts")
    held = 3 * 128 * 64 // 2 + 3 * 128 * 64 // 32 * 3
    assert works["quant_experts", "1, 4 of 16 128x64 int4"].bytes == 4 * held + BYTES * 2 * 128


def test_calls_choose_anew_in_other_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, Any]] = []

    def watch(self: Any, x: Tensor, ids: Tensor, weights: Tensor, up: Tensor, *_: Any) -> Tensor:
        seen.append((up.data_ptr(), sorted(map(sorted, ids.tolist()))))
        return x

    monkeypatch.setattr("jackfield.plugins.kernels.torch_ops.experts.TorchExperts.__call__", watch)
    subject = subject_of("mixture")._replace(sizes=FULL._replace(products=(8, 600)))
    works = works_of(subject, "experts")
    works["experts", "8, 4 of 16 128x64"].run()
    assert len({layer for layer, _ in seen}) == 4
    assert all(one[0] != other[0] for one, other in pairwise(seen))
    assert len({str(ids) for _, ids in seen}) == len(seen) == 16
    seen.clear()
    huge = subject._replace(sizes=subject.sizes._replace(most_copies=1))
    works_of(huge, "experts")["experts", "8, 4 of 16 128x64"].run()
    assert all(one[0] != other[0] for one, other in pairwise(seen))
    assert MOST_CAPTURED < 600
    assert works["experts", "8, 4 of 16 128x64"].capturable
    assert not works["experts", "600, 4 of 16 128x64"].capturable


class StubRoute:
    def capturable(self) -> bool:
        return True

    def __call__(self, logits: Tensor, routing: Routing, bias: Tensor | None = None) -> Chosen:
        assert bias is None
        return route(logits, routing)


def test_choices_are_timed_where_somebody_serves_them() -> None:
    subject = subject_of("latent")
    assert not list(PARTS["route"](subject))
    operations = replace(subject.plain.operations, route=StubRoute())
    owners = {**subject.plain.owners, "route": "stub"}
    table = subject.plain._replace(operations=operations, owners=owners)
    cases = list(PARTS["route"](subject._replace(plain=table)))
    assert [(case.size, case.owner) for case in cases] == [
        ("1, 4 of 16", "stub"),
        ("16, 4 of 16", "stub"),
    ]
    work = cases[1].build()
    work.run()
    assert work.bytes == 16 * (16 * 4 + 4 * (8 + 4))


def test_quantized_products_count_as_they_are_held() -> None:
    works = works_of(subject_of("few bits"), "quant_matmul", "linear")
    held = 128 * 256 // 2 + 128 * 256 // 32 * 3
    work = works["quant_matmul", "qkv 16x128x256 int4"]
    assert (work.bytes, work.flops) == (held + BYTES * 16 * (128 + 256), 2 * 16 * 128 * 256)
    assert {size for name, size in works if name == "linear"} == {
        f"{title} {rows}x128x{outputs}"
        for title, outputs in (("router", 16), ("head", 512))
        for rows in (1, 16)
    }


def test_products_of_gate_and_up_write_half_of_their_outputs() -> None:
    subject = subject_of("fp8")
    packs, name = subject.plain.operations.quant_matmul, "quant_matmul_silu_mul"
    gated = next(one for one in subject.outline.products if one.title == "gate_up")

    class Joint:
        def capturable(self) -> bool:
            return True

        def __call__(self, x_TI: Tensor, packed: Any) -> Tensor:
            return subject.plain.operations.silu_mul(packs(x_TI, packed))  # type: ignore[misc]

    joint: Any = Joint()
    table = subject.plain._replace(
        operations=replace(subject.plain.operations, quant_matmul_silu_mul=joint),
        owners={**subject.plain.owners, name: "stub"},
    )
    outline = subject.outline._replace(gated=(gated,) * 2)
    works = works_of(subject._replace(plain=table, outline=outline), "quant_matmul")
    size = f"gate_up 16x{gated.inputs}x{gated.outputs} fp8"
    one, two = works[name, size], works["quant_matmul", size]
    assert two.bytes - one.bytes == BYTES * 16 * gated.outputs // 2 and one.flops == two.flops
    one.run()


def test_made_up_weights_are_like_the_others() -> None:
    [product, *_] = [one for one in subject_of("few bits").outline.products if one.weight]
    assert product.weight is not None
    made = made_up(product.weight, torch.device("cpu"))
    assert isinstance(made, QuantWeight) and made.nbytes == product.weight.nbytes
    assert made.zeros_RG is not None and int(made.zeros_RG.max()) == 15
    assert float(made.dequantized(torch.float32).std()) > 0
    [coded, *_] = [one for one in subject_of("fp8").outline.products if one.weight]
    assert coded.weight is not None
    found = made_up(coded.weight, torch.device("cpu")).dequantized(torch.float32)
    assert found.isfinite().all() and found.std() > 0


def test_with_ranks_the_part_of_one_is_measured() -> None:
    whole, part = subject_of("latent"), subject_of("latent", tensor=2)
    assert part.spec.num_heads * 2 == whole.spec.num_heads
    works = works_of(part, "experts", "linear")
    assert ("experts", "16, 4 of 16 128x32") in works
    assert ("linear", "out 16x64x128") in works
    result = measure_kernels(configured(tensor=2), "latent", SilentProgress(), only=["experts"])
    assert result.as_dict()["ranks"] == 2
    assert "the part of one of 2 ranks" in kernel_lines(result)
    with pytest.raises(ConfigError, match="it has 4 attention heads"):
        subject_of("latent", tensor=8)


def test_experts_of_other_ranks_are_nobody() -> None:
    subject = subject_of("mixture", tensor=4, experts=True)
    [layer, *_] = subject.outline.experts
    assert (layer.held, layer.choice.routing.num_experts) == (4, 16)
    [chosen] = choices_of(layer, 64, 1)
    assert chosen.distinct == {0, 1, 2, 3}
    assert chosen.assignments == int((chosen.ids_TK >= 0).sum()) < 64 * 4
    work = works_of(subject, "experts")["experts", "16, 4 of 16 128x64"]
    work.run()
    assert work.flops < 2 * 3 * 128 * 64 * 16 * 4 / 2


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ('--set=kernel.stack=["torch"]', "--set=engine.threads=1", "--shape=fp8")
    only = "--only=experts,quant_matmul,route"
    assert main(["bench", "kernels", *flags, only, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {one["operation"] for one in document["operations"]}
    assert found == {"quant_experts", "quant_matmul"}
    assert "route" in document["unserved"]
