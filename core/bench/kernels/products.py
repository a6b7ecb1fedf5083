"""Dense products of a layer and of the output head, with plain and with quantized weights."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from jackfield.core.api import QuantKind, QuantWeight
from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.bench.outline_products import HEAD, Product

LINEAR, QUANTIZED = "linear", "quant_matmul"
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
    """Each quantized weight at every number of rows; none if nobody serves it."""
    for product in _products(subject, quantized=True):
        for rows in subject.sizes.products:
            build = partial(_quant_product, subject, product, rows)
            size = f"{product.title} {rows}x{product.inputs}x{product.outputs} {product.form}"
            yield Case(QUANTIZED, size, subject.plain.owners[QUANTIZED], build)


def _products(subject: KernelSubject, *, quantized: bool) -> list[Product]:
    """Those of layers that are alike once, the head at the end."""
    found = {one.key: one for one in subject.outline.products}.values()
    wanted = [one for one in found if (one.weight is not None) == quantized]
    return sorted(wanted, key=lambda one: one.title == HEAD)


def _product(subject: KernelSubject, product: Product, rows: int) -> Work:
    linear = subject.plain.operations.linear

    def make() -> Callable[[], object]:
        packed = linear.pack(subject.random(product.outputs, product.inputs), None)
        x_TI = subject.random(rows, product.inputs)
        return lambda: linear(x_TI, packed)

    weight = product.inputs * product.outputs * subject.dtype.itemsize
    return _work(subject, product, rows, make, weight, linear.capturable())


def _quant_product(subject: KernelSubject, product: Product, rows: int) -> Work:
    multiply, weight = subject.plain.operations.quant_matmul, product.weight
    assert multiply is not None and weight is not None

    def make() -> Callable[[], object]:
        packed = multiply.pack(made_up(weight, subject.device), None)
        x_TI = subject.random(rows, product.inputs)
        return lambda: multiply(x_TI, packed)

    return _work(subject, product, rows, make, weight.nbytes, multiply.capturable())


def _work(
    subject: KernelSubject,
    product: Product,
    rows: int,
    make: Callable[[], Callable[[], object]],
    weight: int,
    capturable: bool,
) -> Work:
    """weight: its bytes."""
    inputs, outputs = product.inputs, product.outputs
    size = weight + rows * (inputs + outputs) * subject.dtype.itemsize
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
