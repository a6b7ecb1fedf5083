"""Two engines on one device with the same model, workload by workload in turns.

    python scripts/duel.py FOLDER [--engines jackfield,vllm] [--workload mixed,chat20] [--repeat 3]
        [--sites FOLDER,FOLDER] [--memory 0.42,0.46] [--context 4096]

Each engine lives in a process of its own all the while, with its share of the memory, so that
neither the device nor the hour favours one of them. Before each run it forgets the prompts that its
cache knows. Who begins changes with each repetition; a short run of each comes first, and does not
count. Prints all runs, medians and their ratio, and how evenly experts were chosen if the engine
can tell.

sites: for each engine a folder of packages that are found before those of this Python, as
`pip install --target` makes it; an empty one needs none. Jackfield must be found in both.
"""

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

SCRIPT = Path(__file__).with_name("duel_engine.py")


class Run(NamedTuple):
    """wave: mean seconds of what is sent together."""

    tokens_per_second: float
    wave: float

    def __str__(self) -> str:
        return (
            f"{self.tokens_per_second:10,.0f} output tokens/s {self.wave * 1000:10,.0f} ms a wave"
        )


class Contender:
    """One engine's process, which takes the names of workloads and answers with a line each."""

    def __init__(self, name: str, site: str, *told: str) -> None:
        self.name = name
        path = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-u", str(SCRIPT), name, *told], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        print(f"{name} is ready after {self._answer()[0]} s", flush=True)

    def run(self, workload: str, *, short: bool = False) -> Run:
        self._tell(f"{workload} {'short' if short else 'whole'}")
        return Run(*map(float, self._answer()))

    def close(self) -> str:
        """What it says of its experts; waits for its end."""
        self._tell("end")
        return " ".join(self._answer())

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> list[str]:
        """Engines write to the same stream whatever they like."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("DUEL "):
                return line.split()[1:]
        raise SystemExit(f"{self.name} ended with {self._process.wait()}; see above")


def fight(
    contenders: Sequence[Contender], workloads: Sequence[str], repeat: int
) -> dict[str, list[list[Run]]]:
    """By workload, each engine's runs."""
    found: dict[str, list[list[Run]]] = defaultdict(lambda: [[] for _ in contenders])
    for repetition in range(-1, repeat):
        for workload in workloads:
            for turn in range(len(contenders)):
                place = (turn + repetition) % len(contenders)
                run = contenders[place].run(workload, short=repetition < 0)
                if repetition >= 0:
                    found[workload][place].append(run)
                    print(line(workload, contenders[place].name, run), flush=True)
    return found


def line(workload: str, engine: str, run: Run) -> str:
    return f"{workload:8} {engine:12} {run}"


def show(names: Sequence[str], found: dict[str, list[list[Run]]]) -> None:
    for workload, runs in found.items():
        medians = [Run(*map(median, zip(*each, strict=True))) for each in runs]
        for name, run in zip(names, medians, strict=True):
            print(line(workload, name, run))
        ratio = medians[0].tokens_per_second / medians[-1].tokens_per_second
        print(f"{workload:8} ratio        {ratio:10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--engines", default="jackfield,vllm")
    parser.add_argument("--workload", default="mixed,chat20")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sites", default=",")
    parser.add_argument("--memory", default="0.42,0.46")
    parser.add_argument("--context", default="4096")
    given = parser.parse_args()
    names = given.engines.split(",")
    contenders = [
        Contender(name, site, given.folder, memory, given.context)
        for name, site, memory in zip(
            names, given.sites.split(","), given.memory.split(","), strict=True
        )
    ]
    found = fight(contenders, given.workload.split(","), given.repeat)
    for contender in contenders:
        print(contender.close())
    show(names, found)


if __name__ == "__main__":
    main()
