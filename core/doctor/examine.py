"""Everything that can be told of a model before its weights are read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from jackfield.core.api import JackfieldError, ModelSpec, Shard
from jackfield.core.checkpoint.outline_weights import OutlineWeights
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.quant_plan import QuantPlan, read_quant_plan
from jackfield.core.checkpoint.resolve import locate_model
from jackfield.core.checkpoint.safetensors_header import StoredTensor
from jackfield.core.doctor.finding import Finding, has_problem, note, ok, problem
from jackfield.core.doctor.header_weights import HeaderWeights
from jackfield.core.doctor.memory import Room, check_memory
from jackfield.core.doctor.sizes import check_context, check_ranks
from jackfield.core.doctor.source import Source, open_source
from jackfield.core.doctor.stack import Served, serve
from jackfield.core.doctor.tensors import SUBJECT as TENSORS
from jackfield.core.doctor.tensors import build, check_tensors
from jackfield.core.doctor.texts import check_texts
from jackfield.core.executors.device import choose_device, choose_dtype, memory_of
from jackfield.core.executors.loading import CPU_POOL, CPU_SHARE
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import load_model_class


@dataclass(frozen=True, slots=True)
class Report:
    """findings: in the order in which a start would come upon them."""

    model: str
    device: str
    findings: list[Finding]

    @property
    def has_problem(self) -> bool:
        """Whether the model would not start, or not answer rightly."""
        return has_problem(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = [{**each._asdict(), "severity": each.severity.value} for each in self.findings]
        return {**asdict(self), "findings": found}


def examine(resolved: Resolved, memory: int | None, progress: Progress) -> Report:
    """Read JSON files and headers of the configured model, and no weights.

    memory: bytes of the device that it is meant for; None = the one that is here. Raises
    `ModelNotFound` if there is no model at all, `ConfigError` for a device that is not there.
    """
    config = resolved.config.model
    path = locate_model(config.name, revision=config.revision, progress=progress)
    device = choose_device(resolved.config.engine.device)
    try:
        source = open_source(path, config.tokenizer)
    except JackfieldError as error:
        return Report(str(path), str(device), [problem("folder", str(error))])
    findings = [ok("folder", f"{path} is {source.form}."), *_findings(source, resolved, memory)]
    return Report(str(path), str(device), findings)


def _findings(source: Source, resolved: Resolved, memory: int | None) -> list[Finding]:
    found = _Examination(source, resolved, memory)
    found.model()
    found.files()
    found.weights()
    texts = [] if resolved.config.model.skip_tokenizer_init else check_texts(source, found.spec)
    return [*found.findings, *texts]


class _Examination:
    """What was found so far; each step does what it can with that."""

    def __init__(self, source: Source, resolved: Resolved, memory: int | None) -> None:
        self.findings: list[Finding] = []
        self.spec: ModelSpec | None = None
        self._source, self._resolved, self._memory = source, resolved, memory
        self._class: Any = None
        self._plan: QuantPlan | None = None
        self._stored: Mapping[str, StoredTensor] | None = None
        self._device = choose_device(resolved.config.engine.device)
        model = resolved.config.model
        self._dtype: torch.dtype = choose_dtype(model.dtype, source.dtype_name, self._device)

    def model(self) -> None:
        """Architecture, sizes, quantization."""
        source, config = self._source, self._resolved.config.model
        name = config.architecture or source.architecture
        try:
            chosen = load_model_class(name)
            self._class = chosen.cls
        except JackfieldError as error:
            self.findings.append(problem("architecture", str(error)))
            return
        try:
            self.spec = self._class.describe(source.config)
            self._plan = read_quant_plan(source.config)
        except JackfieldError as error:
            self.findings.append(problem("config", str(error)))
            return
        spec = self.spec
        assert spec is not None
        self.findings += [
            ok("architecture", f"{name} is served by {chosen.found.distribution}, "
                               f"{spec.num_parameters / 1e6:,.0f} M parameters."),
            check_context(source.config, spec, config.max_model_len),
            check_ranks(spec),
        ]  # fmt: skip

    def files(self) -> None:
        """Which tensors there are."""
        if self._resolved.config.model.load_format == "dummy":
            self.findings.append(note(TENSORS, "None is read, since model.load_format is dummy."))
            return
        try:
            self._stored = self._source.stored()
        except JackfieldError as error:
            self.findings.append(problem("files", str(error)))

    def weights(self) -> None:
        """Tensors against the model, ranks, how quantized weights are served, memory."""
        if self.spec is None:
            return
        try:
            served = serve(self._resolved, self.spec, self._device, self._dtype)
        except JackfieldError as error:
            self.findings.append(problem("stack", str(error)))
            return
        if self._stored is None:
            size = self._made_up_size(self.spec, served)
            self.findings += check_memory(served, size, self._room(served, size))
            return
        weights = HeaderWeights(self._stored, self._plan, self._dtype)
        stopped = build(self._class, self._source.config, weights, served.table.owners)
        self.findings += [stopped] if stopped else check_tensors(weights)
        if not has_problem(self.findings):
            self._tell_quantization(weights, served)
        self.findings += check_memory(served, weights.bytes, self._room(served, weights.bytes))

    def _made_up_size(self, spec: ModelSpec, served: Served) -> int:
        """Of weights that no file tells of."""
        if self._plan is not None:
            weights = OutlineWeights(self._dtype, Shard(), self._plan)
            if build(self._class, self._source.config, weights, served.table.owners) is None:
                return weights.nbytes
        return spec.num_parameters * self._dtype.itemsize

    def _tell_quantization(self, weights: HeaderWeights, served: Served) -> None:
        plan = self._plan
        if plan is None:
            return
        schemes = " and ".join(dict.fromkeys(rule.scheme.text for rule in plan.rules))
        if not weights.kept + weights.dequantized:
            self.findings.append(problem(
                "quantization",
                f"config.json says {schemes}, but no weight is quantized; remove "
                f"quantization_config, or fetch the model again.",
            ))  # fmt: skip
            return
        owners = served.table.owners
        experts = self.spec is not None and self.spec.num_experts > 0
        names = ("quant_matmul", "quant_experts") if experts else ("quant_matmul",)
        who = " and ".join(dict.fromkeys(repr(owners[name]) for name in names if name in owners))
        text = f"{schemes}: {weights.kept:,} weights stay as they are stored"
        text += f", multiplied by {who}" if weights.kept else ""
        if not weights.dequantized:
            self.findings.append(ok("quantization", f"{text}."))
            return
        why = "they take the memory of plain ones"
        why = why if owners.keys() >= set(names) else "add 'torch' to kernel.stack"
        self.findings.append(note(
            "quantization",
            f"{text}, {weights.dequantized:,} are dequantized when they are loaded; {why}.",
        ))  # fmt: skip

    def _room(self, served: Served, weights: int) -> Room:
        cache = self._resolved.config.cache
        share, beside = cache.memory_fraction, weights + served.scratch
        if cache.num_blocks is not None:
            return Room(beside + cache.num_blocks * served.block_bytes, "by cache.num_blocks")
        if cache.memory is not None:
            return Room(beside + cache.memory, "by cache.memory")
        if self._memory is not None:
            return Room(int(self._memory * share), f"{share:g} of what --memory says")
        memory = memory_of(self._device)
        if self._device.type != "cpu":
            return Room(int(memory.total * share), f"{share:g} of this device")
        if weights > memory.free:
            return Room(memory.free, "what is free here")
        pool = min(CPU_POOL, int((memory.free - weights) * CPU_SHARE))
        return Room(beside + pool, "weights, a step and the pool that a CPU gets by default")
