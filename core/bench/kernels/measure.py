"""Every operation of the bound table, against what the device does at best."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import jackfield
from jackfield.core.api import ConfigError, JackfieldError
from jackfield.core.api.errors import nearest
from jackfield.core.api.kernel import OPTIONAL_OPERATIONS
from jackfield.core.bench.kernels.attention import attention_cases
from jackfield.core.bench.kernels.case import Case, OperationTime
from jackfield.core.bench.kernels.elementwise import elementwise_cases
from jackfield.core.bench.kernels.experts import expert_cases, route_cases
from jackfield.core.bench.kernels.products import product_cases, quant_product_cases
from jackfield.core.bench.kernels.sampling import sample_cases
from jackfield.core.bench.kernels.sizes import FULL, QUICK
from jackfield.core.bench.kernels.step_inputs import step_input_cases
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.bench.kernels.timing import seconds_per_call
from jackfield.core.bench.machine import Ceilings, measure_ceilings
from jackfield.core.bench.provenance import device_name, git_revision, stack_names, versions
from jackfield.core.bench.shapes import SHAPES
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.executors.device import choose_device, set_threads
from jackfield.core.host.sources import Resolved

PARTS: Mapping[str, Callable[[KernelSubject], Iterator[Case]]] = {
    "attention": attention_cases,
    "elementwise": elementwise_cases,
    "linear": product_cases,
    "quant_matmul": quant_product_cases,
    "experts": expert_cases,
    "route": route_cases,
    "sample": sample_cases,
    "step_inputs": step_input_cases,
}


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """shape: the model whose sizes were used. unserved: optional operations that nobody brings.
    where: device, ranks, element type,
    stack, versions; with several ranks, sizes are those of the first one's part."""

    shape: str
    unserved: list[str]
    ceilings: Ceilings
    operations: list[OperationTime]
    where: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.where,
            "model": self.shape,
            "unserved": self.unserved,
            "read_bytes_per_second": round(self.ceilings.read),
            "copy_bytes_per_second": round(self.ceilings.copy),
            "flops_per_second": round(self.ceilings.flops),
            "operations": [operation.as_dict() for operation in self.operations],
        }


def measure_kernels(
    resolved: Resolved,
    shape: str | None,
    progress: Progress,
    *,
    only: Sequence[str] | None = None,
    quick: bool | None = None,
) -> KernelTimes:
    """Time the operations that the configuration binds, at the sizes of a model.

    shape: its name; None = the configured model, or one that suits the device if none is. only:
    of `PARTS`. quick: small sizes; None = on a CPU. Raises `JackfieldError`s.
    """
    for part in only or ():
        if part not in PARTS:
            raise ConfigError(f"unknown operations {part!r}. {nearest(part, PARTS)}")
    set_threads(resolved.config.engine.threads)
    device = choose_device(resolved.config.engine.device)
    quick = device.type == "cpu" if quick is None else quick
    name, config = _model(resolved, shape, quick, progress)
    with torch.inference_mode():
        subject = KernelSubject.of(resolved, config, QUICK if quick else FULL)
        progress.start("Measuring the device", None)
        ceilings = measure_ceilings(device, subject.dtype)
        progress.finish()
        times = _times(subject, ceilings, progress, only or tuple(PARTS))
    unserved = sorted(OPTIONAL_OPERATIONS - subject.plain.owners.keys())
    return KernelTimes(name, unserved, ceilings, times, _where(resolved, subject))


def _model(
    resolved: Resolved, shape: str | None, quick: bool, progress: Progress
) -> tuple[str, Mapping[str, Any]]:
    configured = resolved.config.model.name
    if shape is None and configured:
        revision = resolved.config.model.revision
        path = resolve_model(configured, revision=revision, progress=progress)
        return configured, ModelFolder(path).config
    shape = shape or ("qwen3-tiny" if quick else "qwen3-8b")
    if shape not in SHAPES:
        raise ConfigError(f"unknown shape {shape!r}. {nearest(shape, SHAPES)}")
    return shape, SHAPES[shape]


def _times(
    subject: KernelSubject, ceilings: Ceilings, progress: Progress, parts: Sequence[str]
) -> list[OperationTime]:
    cases = [case for part in PARTS if part in parts for case in PARTS[part](subject)]
    found = []
    progress.start("Measuring operations", len(cases))
    try:
        for case in cases:
            found.append(_time(subject, case, ceilings))
            torch.cuda.empty_cache()  # sizes differ, and some of them need all there is
            progress.advance(1)
    finally:
        progress.finish()
    return found


def _time(subject: KernelSubject, case: Case, ceilings: Ceilings) -> OperationTime:
    """What fails says why in its place: the others are measured all the same."""
    try:
        work = case.build()
        work = work._replace(capturable=work.capturable and subject.device.type == "cuda")
        seconds = seconds_per_call(work, subject.device, subject.sizes.seconds)
        return OperationTime.of(case, work, seconds, ceilings)
    except Exception as error:
        return OperationTime(case.operation, case.size, case.owner, problem=_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, JackfieldError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"


def _where(resolved: Resolved, subject: KernelSubject) -> dict[str, Any]:
    return {
        "dtype": str(subject.dtype).removeprefix("torch."),
        "device": device_name(subject.device),
        "ranks": subject.outline.shard.size,
        "threads": torch.get_num_threads(),
        "stack": stack_names(resolved.config.model_dump()),
        "git_revision": git_revision(Path(jackfield.__file__)),
        "versions": versions(),
    }
