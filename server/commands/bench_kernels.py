"""`jackfield bench kernels`: each operation against what the device does at best."""

import json
import os
from typing import Annotated

import typer

from jackfield.core.inspection import load_config
from jackfield.server.bench_report import kernel_lines
from jackfield.server.commands.engine_options import EngineArguments
from jackfield.server.commands.options import JsonOption

ShapeOption = Annotated[
    str | None,
    typer.Option(
        "--shape", metavar="NAME",
        help="The model whose sizes are used; default: the configured one, else qwen3-8b, or "
        "qwen3-tiny with --quick.",
    ),
]  # fmt: skip
OnlyOption = Annotated[
    str | None,
    typer.Option(
        "--only", metavar="NAME,NAME",
        help="Of attention, elementwise, linear, quant_matmul, experts, route, sample, "
        "step_inputs.",
    ),
]  # fmt: skip
QuickOption = Annotated[
    bool | None,
    typer.Option("--quick/--full", help="Small sizes, or all of them; default: small on a CPU."),
]


def kernels_command(
    engine: EngineArguments,
    shape: ShapeOption = None,
    only: OnlyOption = None,
    quick: QuickOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time each operation of the kernel stack, and compare it with what the device can do.

    The ceilings are measured first: reading memory, copying it, and large products. An operation
    is called in turn on as many tensors as the device's cache cannot hold, on a GPU inside a CUDA
    graph where it may be in one, and the median of many rounds counts. The share is that of the
    nearer ceiling.
    """
    resolved = load_config(engine.config, os.environ, engine.flags)
    from jackfield.core.bench.kernels.measure import measure_kernels
    from jackfield.core.checkpoint.progress import RichProgress

    names = None if only is None else only.split(",")
    result = measure_kernels(resolved, shape, RichProgress(), only=names, quick=quick)
    typer.echo(json.dumps(result.as_dict()) if as_json else kernel_lines(result))
