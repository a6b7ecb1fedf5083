"""A workload on a loaded model: what it is compared with, and what each repetition gave."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from jackfield.core.api import SamplingParams
from jackfield.core.bench.device_figures import NOT_MEASURED, DeviceFigures, measure_device
from jackfield.core.bench.expert_loads import Counts, ExpertLoad, expert_loads
from jackfield.core.bench.loaded_cost import cost_of
from jackfield.core.bench.provenance import device_of, provenance
from jackfield.core.bench.roofline import Machine, ModelCost, ideal_seconds
from jackfield.core.bench.step_figures import StepCounter
from jackfield.core.bench.streams import request_params
from jackfield.core.bench.workloads import Workload
from jackfield.core.llm import LLM

WARM_UP = 2
SHORT = slice(0, WARM_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRun:
    """One run. Planning times in microseconds, step times in milliseconds, as in `StepFigures`.

    roofline_share: the roofline's seconds of the seconds it took; of experts it has those as likely
    as they were chosen in this run. bandwidth, flops: of the device of one rank. wave_ms: mean time
    of a wave, for workloads that have waves. cached_prompt_tokens: that were there already.
    on_device: of a repetition of its own, the same for all runs. where: model, device, ranks,
    stack, revision, versions. experts: of each layer that has some, how evenly tokens went to them.
    """

    workload: str
    run: int
    requests: int
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    seconds: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    wave_ms: float | None
    steps: int
    preemptions: int
    planning_us_p50: float
    planning_us_p99: float
    step_ms_p50: float
    step_ms_p99: float
    step_ms_histogram: list[tuple[float, int]]
    roofline_share: float
    roofline_seconds: float
    bandwidth: float
    flops: float
    temperature: float
    on_device: DeviceFigures
    where: dict[str, Any]
    experts: Sequence[ExpertLoad] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON, flat but for the histogram, the stack and the versions."""
        found = asdict(self)
        where: dict[str, Any] = found.pop("where")
        found |= found.pop("on_device")._asdict()
        found["step_ms_histogram"] = [
            {"up_to_ms": bound, "steps": steps} for bound, steps in self.step_ms_histogram
        ]
        found["experts"] = [load._asdict() for load in self.experts]
        return where | found


class Subject(NamedTuple):
    """A workload on a loaded model. params: of its requests. cost: of one rank."""

    llm: LLM
    workload: Workload
    params: Sequence[SamplingParams]
    machine: Machine
    cost: ModelCost
    where: dict[str, Any]

    @classmethod
    def each(
        cls, llm: LLM, workloads: Sequence[Workload], machine: Machine, *, greedy: bool
    ) -> "list[Subject]":
        """machine: as it was measured."""
        cost, where = cost_of(llm.assembly), provenance(llm.assembly)
        return [
            cls(llm, one, request_params(one, greedy=greedy), machine, cost, where)
            for one in workloads
        ]

    def warm_up(self) -> None:
        """Answer two of its prompts."""
        self.llm.generate(self.workload.prompts[SHORT], self.params[SHORT], use_tqdm=False)

    def waves(self) -> Iterator[tuple[list[list[int]], Sequence[SamplingParams]]]:
        """Prompts and parameters of the requests that are sent together."""
        for wave in self.workload.waves():
            yield self.workload.prompts[wave], self.params[wave]

    @property
    def on_cpu(self) -> bool:
        """Whether there is no timeline but the host's."""
        return device_of(self.llm.assembly).type == "cpu"

    def figures(self, run: int, counter: StepCounter, waves: Sequence[float]) -> dict[str, Any]:
        """All that a `WorkloadRun` has, but for `on_device` and what its experts tell. waves:
        seconds of each."""
        workload, seconds = self.workload, sum(waves)
        outputs, prompts = workload.num_output_tokens, workload.num_prompt_tokens
        return {
            "workload": workload.name,
            "run": run,
            "requests": len(workload.prompts),
            "prompt_tokens": prompts,
            "output_tokens": outputs,
            "seconds": round(seconds, 4),
            "output_tokens_per_second": round(outputs / seconds, 2),
            "total_tokens_per_second": round((outputs + prompts) / seconds, 2),
            "wave_ms": round(1e3 * seconds / len(waves), 2) if workload.concurrency else None,
            "bandwidth": round(self.machine.bandwidth),
            "flops": round(self.machine.flops),
            "temperature": self.params[0].temperature,
            "where": self.where,
            **counter.figures()._asdict(),
        }

    def roofline(self, seconds: float, before: Counts, after: Counts) -> dict[str, Any]:
        """What a `WorkloadRun` has of it. before, after: of the run, what experts got."""
        cost = self.cost.counted(before, after)
        ideal = ideal_seconds(self.workload, cost, self.machine)
        return {
            "roofline_share": round(ideal / seconds, 4),
            "roofline_seconds": round(ideal, 4),
            "experts": expert_loads(before, after),
        }


def repetitions(
    subjects: Sequence[Subject], run: Callable[[Subject, int], dict[str, Any]], repeat: int
) -> Iterator[dict[str, Any]]:
    """The fields of each run, of each subject after two of its prompts to warm up.

    On a GPU they come at the end: what its own timeline tells is measured after all runs, since a
    profiler may leave something behind that slows down what follows.
    """
    if all(subject.on_cpu for subject in subjects):
        for subject in subjects:
            for figures in _runs(subject, run, repeat):
                yield {**figures, "on_device": NOT_MEASURED}
        return
    found = [(subject, list(_runs(subject, run, repeat))) for subject in subjects]
    for subject, runs in found:
        on_device = measure_device(subject.llm, list(subject.waves()))
        for figures in runs:
            yield {**figures, "on_device": on_device}


def _runs(
    subject: Subject, run: Callable[[Subject, int], dict[str, Any]], repeat: int
) -> Iterator[dict[str, Any]]:
    subject.warm_up()
    for number in range(repeat):
        subject.llm.reset_prefix_cache()
        before = subject.llm.expert_counts()
        figures = run(subject, number)
        after = subject.llm.expert_counts()
        yield {**figures, **subject.roofline(figures["seconds"], before, after)}
