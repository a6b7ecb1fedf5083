"""Some steps as torch's profiler sees them, with the phases of each step by name."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from jackfield.core.api import SamplingParams
from jackfield.core.bench.streams import play, request_params
from jackfield.core.bench.watching import Call, wrapped
from jackfield.core.bench.workloads import Workload
from jackfield.core.llm import LLM

Wave = tuple[Sequence[Sequence[int]], Sequence[SamplingParams]]


class TraceWindow(NamedTuple):
    """Which steps are recorded. first: the number of the first one. It ends after so many steps,
    or after so many seconds, whichever comes first. decodes: it begins with the first step from
    there on that computes no prompt."""

    first: int = 0
    steps: int = 50
    seconds: float = 5.0
    decodes: bool = False


class StepTrace:
    """Records the steps of a window. `decodes`: of each recorded step, whether it was one of
    decodes only."""

    def __init__(self, llm: LLM, window: TraceWindow) -> None:
        self.decodes: list[bool] = []
        self.done = False
        self._llm = llm
        self._window = window
        self._seen = 0
        self._ends = 0.0
        self._profile: profile | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Meanwhile, steps are counted, and those of the window recorded.

        The phases: `step` is a turn of the engine; in it are `plan` and `commit` of the next step,
        its `forward` and `sample`, and `collect` of one that was submitted before.
        """
        engine, executor = self._llm.assembly.engine, self._llm.assembly.loaded.executor
        phases = [
            (engine, "step"), (engine._scheduler, "plan"), (engine.lifecycle.planner, "commit"),
            (executor, "forward"), (executor, "sample"), (executor, "collect"),
        ]  # fmt: skip
        with ExitStack() as stack:
            for owner, name in phases:
                stack.enter_context(wrapped(owner, name, _named(name)))
            stack.enter_context(wrapped(executor, "forward", self._counted))
            yield
        self._stop()

    def export(self, path: Path) -> bool:
        """Write what was recorded, packed if the name ends in .gz; False if there is nothing."""
        if self._profile is None:
            return False
        self._profile.export_chrome_trace(str(path))
        return True

    def _counted(self, call: Call) -> Call:
        def forward(plan: Any) -> Any:
            decodes = plan.num_decodes == len(plan.slices)
            self._at(decodes)
            if self._profile is not None and not self.done:
                self.decodes.append(decodes)
            self._seen += 1
            return call(plan)

        return forward

    def _at(self, decodes: bool) -> None:
        """Begin or end here, if it is time."""
        window = self._window
        if self._profile is None:
            if self._seen >= window.first and (decodes or not window.decodes):
                self._start()
        elif len(self.decodes) >= window.steps or perf_counter() >= self._ends:
            self._stop()

    def _start(self) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities, acc_events=True)
        self._profile.start()  # takes seconds the first time
        self._ends = perf_counter() + self._window.seconds

    def _stop(self) -> None:
        if self._profile is None or self.done:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profile.stop()
        self.done = True


def trace_steps(llm: LLM, waves: Sequence[Wave], window: TraceWindow) -> StepTrace:
    """Send the waves until the window is recorded, then give the rest up."""
    llm.reset_prefix_cache()
    trace = StepTrace(llm, window)
    with trace.installed():
        for prompts, params in waves:
            if not trace.done:
                play(llm, prompts, params, lambda: trace.done)
    return trace


def record(llm: LLM, workload: Workload, window: TraceWindow, path: Path, *, greedy: bool) -> int:
    """Write a trace of a further run of a workload; gives how many steps are in it."""
    params = request_params(workload, greedy=greedy)
    waves = [(workload.prompts[wave], params[wave]) for wave in workload.waves()]
    trace = trace_steps(llm, waves, window)
    trace.export(path)
    return len(trace.decodes)


def _named(name: str) -> Any:
    def wrap(call: Call) -> Call:
        def run(*arguments: Any) -> Any:
            with record_function(name):
                return call(*arguments)

        return run

    return wrap
