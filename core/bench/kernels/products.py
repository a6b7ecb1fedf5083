"""Dense products of a layer and of the output head, with plain and with quantized weights."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from jackfield.core.api import QuantKind, QuantWeight
from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.bench.outline_products import HEAD, Product

LINEAR, QUANTIZED, GATED = "linear", "quant_matmul", "quant_matmul_silu_mul"
SMALL = 0xBF
"""Bits that codes of e4m3 may have: numbers below two, and none that is no number."""
SCALE = 0.01


def product_cases(subject: KernelSubject) -> Iterator[Case]:
    """Each plain weight at every number of rows."""
    for product in _products(subject, quantized=False):
        for rows in subject.sizes.products:
            build = partial(_product, subject, product, rows)
            size = f"{product.title} {rows}x{product.inputs}x{product.outputs}"
            yield Case(LINEAR, size, subject.plain.owners[LINEAR], build)


def quant_product_cases(subject: KernelSubject) -> Iterator[Case]:
    """Each quantized weight at every number of rows, those of gate and up also with the gate's
    function; none if nobody serves it."""
    products = _products(subject, quantized=True)
    gated = _alike_once(subject.outline.gated)
    for operation, product in [*((QUANTIZED, p) for p in products), *((GATED, p) for p in gated)]:
        for rows in subject.sizes.products:
            build = partial(_quant_product, subject, operation, product, rows)
            size = f"{product.title} {rows}x{product.inputs}x{product.outputs} {product.form}"
            yield Case(operation, size, subject.plain.owners[operation], build)


def _products(subject: KernelSubject, *, quantized: bool) -> list[Product]:
    """Those of layers that are alike once, the head at the end."""
    found = _alike_once(subject.outline.products)
    wanted = [one for one in found if (one.weight is not None) == quantized]
    return sorted(wanted, key=lambda one: one.title == HEAD)


def _alike_once(products: Iterable[Product]) -> Iterable[Product]:
    return {one.key: one for one in products}.values()


def _product(subject: KernelSubject, product: Product, rows: int) -> Work:
    linear = subject.plain.operations.linear

    def make() -> Callable[[], object]:
        packed = linear.pack(subject.random(product.outputs, product.inputs), None)
        x_TI = subject.random(rows, product.inputs)
        return lambda: linear(x_TI, packed)

    weight = product.inputs * product.outputs * subject.dtype.itemsize
    return _work(subject, product, rows, make, weight, linear.capturable())


def _quant_product(subject: KernelSubject, operation: str, product: Product, rows: int) -> Work:
    operations, weight = subject.plain.operations, product.weight
    packs, multiply = operations.quant_matmul, getattr(operations, operation)
    assert packs is not None and weight is not None

    def make() -> Callable[[], object]:
        packed = packs.pack(made_up(weight, subject.device), None)
        x_TI = subject.random(rows, product.inputs)
        return lambda: multiply(x_TI, packed)

    out = product.outputs // 2 if operation == GATED else product.outputs
    return _work(subject, product, rows, make, weight.nbytes, multiply.capturable(), out)


def _work(
    subject: KernelSubject,
    product: Product,
    rows: int,
    make: Callable[[], Callable[[], object]],
    weight: int,
    capturable: bool,
    written: int | None = None,
) -> Work:
    """weight: its bytes. written: entries of a row; None = all outputs."""
    inputs, outputs = product.inputs, product.outputs
    written = outputs if written is None else written
    size = weight + rows * (inputs + written) * subject.dtype.itemsize
    flops = 2 * rows * inputs * outputs
    return subject.work(make, weight, capturable=capturable, bytes=size, flops=flops)


def made_up(weight: QuantWeight, device: torch.device) -> QuantWeight:
    """Random values, in the form of a weight that has none."""

    def codes(like: Tensor, below: int) -> Tensor:
        return torch.randint(0, below, like.shape, dtype=torch.uint8, device=device)

    values, zeros_RG = codes(weight.values, 256), weight.zeros_RG
    if weight.kind is QuantKind.FP8:
        values = (values & SMALL).view(weight.values.dtype)
    return replace(
        weight,
        values=values,
        scales_RG=torch.full_like(weight.scales_RG, SCALE, device=device),
        zeros_RG=None if zeros_RG is None else codes(zeros_RG, 2 * weight.kind.middle),
    )
