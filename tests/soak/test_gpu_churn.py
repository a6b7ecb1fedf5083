"""Long churn on one GPU: nothing grows, and nothing is left on the card, whatever ends the process.

Without a GPU, `pytest tests/soak/test_gpu_churn.py --churn-shape qwen3-tiny --churn-seconds 20`
tries what does not need one.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any, NamedTuple

import psutil
import pytest
import torch

CHURN = Path(__file__).parent / "churn.py"
MIB = 1 << 20
SEGMENT = 20 * MIB
"""What torch's allocator takes of the card at once, for tensors of up to 10 MiB."""
ON_CARD = ("allocated", "reserved", "used")
GROWTH = 1.03
RESTS, GROWTH_AT_REST = 4, 1.01
SLACK = 64 * MIB
"""Of what the process holds, which its allocator may keep."""
LEFT_ON_CARD = 8 * MIB
TO_START, TO_END = 300.0, 300.0
TO_FREE = 30.0
"""Seconds that the driver has to give back what a process had."""
BEFORE_DEATH = 8
Line = Mapping[str, Any]
COLUMNS = (
    "seconds", "sent", "finished", "aborted", "failed", "tokens", "preemptions", "evicted",
    "running", "waiting", "objects", "rss", "allocated", "peak", "reserved", "used",
)  # fmt: skip
IN_MIB = ("rss", "allocated", "peak", "reserved", "used")
ROWS = 20


class Told(NamedTuple):
    """What a process said. code: of its exit."""

    series: list[Line]
    end: Line
    code: int


class Command(NamedTuple):
    """How an engine is started."""

    shape: str
    seconds: float
    log: Path

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """The process, which does not outlive the block, nor its time by much."""
        command = [sys.executable, str(CHURN), "--shape", self.shape]
        command += ["--seconds", str(self.seconds)]
        hidden = ("TRITON_INTERPRET", "JACKFIELD_ALL_KERNELS")
        variables = {name: text for name, text in os.environ.items() if name not in hidden}
        with (
            self.log.open("w") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=variables
            ) as process,
        ):
            alarm = Timer(self.seconds + TO_START + TO_END, process.kill)
            alarm.start()
            try:
                yield process
            finally:
                alarm.cancel()
                process.kill()


def lines(process: subprocess.Popen[str]) -> Iterator[Line]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def live(command: Command) -> Told:
    """A whole life."""
    with command.running() as process:
        told = list(lines(process))
        code = process.wait(TO_END)
    series = [line for line in told if line.get("seconds", command.seconds) < command.seconds]
    assert told and "ended" in told[-1], f"it ended too early ({code}):\n{tail(command.log)}"
    return Told(series, told[-1], code)


def tail(log: Path) -> str:
    return log.read_text()[-4000:]


def die(command: Command) -> None:
    """A life that ends in its middle, with all that the process has started."""
    with command.running() as process:
        told = enumerate(lines(process), start=1)
        busy = any(number >= BEFORE_DEATH and line.get("running") for number, line in told)
        assert busy, f"it ended too early:\n{tail(command.log)}"
        others = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait(TO_END)
    _, alive = psutil.wait_procs(others, TO_FREE)
    assert alive == []


def grown(series: Sequence[Line], seconds: float) -> list[str]:
    """What has become more, and by how much. Two fifths of the time are for warming up: the largest
    of all steps is a matter of chance, and may come after minutes."""
    warm = [line for line in series if line["seconds"] <= 2 * seconds / 5]
    later = [line for line in series if line["seconds"] > 2 * seconds / 5]
    early = [line for line in warm if line["seconds"] > seconds / 5]
    last = [line for line in later if line["seconds"] > 4 * seconds / 5]
    assert warm and early and last, f"only {len(series)} lines"
    found = []
    for name in ON_CARD if "used" in series[0] else ():
        most = max(line[name] for line in warm) + SEGMENT
        found += compared(name, max(line[name] for line in later), most)
    usual, now = (median(line["rss"] for line in lines) for lines in (early, last))
    return found + compared("rss", now, max(GROWTH * usual, usual + SLACK))


def more_at_rest(objects: Sequence[int]) -> list[str]:
    """Whether there are more of them in the end than there were after a while."""
    assert len(objects) >= RESTS, f"nobody was there only {len(objects)} times"
    return compared("objects", objects[-1], GROWTH_AT_REST * max(objects[: len(objects) // 2]))


def compared(name: str, found: float, most: float) -> list[str]:
    return [f"{name}: {found:,.0f}, expected at most {most:,.0f}"] if found > most else []


def table(told: Told) -> str:
    """One screen."""
    step = -(-len(told.series) // ROWS)
    columns = [name for name in COLUMNS if name in told.series[0]]
    rows = [[shown(name, line[name]) for name in columns] for line in told.series[::step]]
    heads = [f"{name}/MiB" if name in IN_MIB else name for name in columns]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    text = [" ".join(map(str.rjust, row, widths)) for row in (heads, *rows)]
    return "\n".join(["", *text, f"end: {json.dumps(told.end)}", ""])


def shown(name: str, value: float) -> str:
    return f"{value / MIB:.0f}" if name in IN_MIB else f"{value:.0f}"


def free_on_card() -> int:
    """Bytes; 0 without a GPU."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0


def nothing_is_left(before: int) -> None:
    """The driver may need a moment."""
    ending = time.monotonic() + TO_FREE
    while (missing := before - free_on_card()) > LEFT_ON_CARD and time.monotonic() < ending:
        time.sleep(0.1)
    assert missing <= LEFT_ON_CARD, f"{missing / MIB:.0f} MiB are left on the card"


@pytest.fixture
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Command:
    shape = request.config.getoption("--churn-shape", None)
    if shape is None and not torch.cuda.is_available():
        pytest.skip("needs a GPU; on a CPU it can be tried with --churn-shape qwen3-tiny")
    seconds = request.config.getoption("--churn-seconds", 600.0)
    return Command(shape or "qwen3-0.6b", seconds, tmp_path / "log")


@pytest.mark.gpu
def test_nothing_grows(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    before = free_on_card()
    told = live(command)
    with capsys.disabled():
        print(table(told))
    end = told.end
    assert end.get("failed", 0) == 0, end["failures"]
    assert end["finished"] + end["aborted"] == end["sent"]
    assert not any(end[name] for name in ("running", "waiting", "parked", "blocks", "work"))
    assert end["mailboxes"] == 0 and end["faults"] == {}
    assert told.code == 0, tail(command.log)
    assert all(told.series[-1][name] > 0 for name in ("preemptions", "evicted", "tokens"))
    assert end["bursts"] > 0 and end["empty"] > 0
    assert grown(told.series, command.seconds) == []
    assert command.seconds < 300 or more_at_rest(end["at_rest"]) == []
    nothing_is_left(before)


@pytest.mark.gpu
def test_a_killed_process_leaves_nothing(command: Command) -> None:
    before = free_on_card()
    die(command)
    nothing_is_left(before)


Number = Callable[[int], float]
STEADY: Mapping[str, Number] = {
    "rss": lambda at: 1000 * MIB + at % 7 * MIB,
    "allocated": lambda at: 9000 * MIB + at % 3 * MIB,
    "reserved": lambda at: 9900 * MIB,
    "used": lambda at: 10_500 * MIB,
}
GROWING: Mapping[str, Number] = {
    "rss": lambda at: 1000 * MIB + at * 2 * MIB,
    "allocated": lambda at: 9000 * MIB + at * MIB / 2,
    "reserved": lambda at: (9900 + 42 * (at >= 60)) * MIB,
    "used": lambda at: (10_500 + 42 * (at == 119)) * MIB,
}


def drawn(numbers: Mapping[str, Number]) -> list[Line]:
    """Ten minutes, a line every 5 seconds."""
    made = {name: [number(at) for at in range(1, 121)] for name, number in numbers.items()}
    return [
        {"seconds": 5.0 * (1 + at), **{name: column[at] for name, column in made.items()}}
        for at in range(120)
    ]


def test_what_is_steady_is_no_growth() -> None:
    assert grown(drawn(STEADY), 600.0) == []


@pytest.mark.parametrize("name", GROWING)
def test_growth_is_found(name: str) -> None:
    found = grown(drawn({**STEADY, name: GROWING[name]}), 600.0)
    assert [one.partition(":")[0] for one in found] == [name]


def test_growth_in_the_warm_up_is_none() -> None:
    warming = {name: (lambda at, n=n: n(at) * min(at, 24) / 24) for name, n in STEADY.items()}
    assert grown(drawn(warming), 600.0) == []


def test_objects_are_counted_when_nobody_is_there() -> None:
    assert more_at_rest([200_000, 230_000, 230_500, 231_000, 230_800]) == []
    assert more_at_rest([200_000, 230_000, 231_000, 234_000, 238_000]) != []
