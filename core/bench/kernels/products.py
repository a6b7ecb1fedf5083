"""Dense products of one layer and of the output head."""

from collections.abc import Callable, Iterator
from functools import partial

from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.subject import KernelSubject


def product_cases(subject: KernelSubject) -> Iterator[Case]:
    """Each weight at every number of rows."""
    for name, (inputs, outputs) in _weights(subject).items():
        for rows in subject.sizes.products:
            build = partial(_product, subject, rows, inputs, outputs)
            size = f"{name} {rows}x{inputs}x{outputs}"
            yield Case("linear", size, subject.plain.owners["linear"], build)


def _weights(subject: KernelSubject) -> dict[str, tuple[int, int]]:
    """Input and output width of each."""
    spec, width = subject.spec, subject.feed_forward
    heads = spec.num_heads * spec.head_dim
    merged = heads + 2 * spec.num_kv_heads * spec.head_dim
    return {
        "qkv": (spec.hidden_size, merged),
        "out": (heads, spec.hidden_size),
        "gate_up": (spec.hidden_size, 2 * width),
        "down": (width, spec.hidden_size),
        "head": (spec.hidden_size, spec.vocab_size),
    }


def _product(subject: KernelSubject, rows: int, inputs: int, outputs: int) -> Work:
    linear = subject.plain.operations.linear

    def make() -> Callable[[], object]:
        packed = linear.pack(subject.random(outputs, inputs), None)
        x_TI = subject.random(rows, inputs)
        return lambda: linear(x_TI, packed)

    itemsize = subject.dtype.itemsize
    weight = inputs * outputs * itemsize
    size = weight + rows * (inputs + outputs) * itemsize
    capturable = linear.capturable()
    flops = 2 * rows * inputs * outputs
    return subject.work(make, weight, capturable=capturable, bytes=size, flops=flops)
