"""Where a process is: the stacks of its threads, also when it cannot answer any more."""

import faulthandler
import signal
import sys
import traceback
from types import FrameType
from typing import IO

MARK = "rank_process.py"
"""A file that only the main thread of a rank has on its stack."""
COLLECTIVE = "torch/distributed/"
ASK = signal.SIGUSR2


def write_stacks_to(descriptor: int) -> None:
    """Have this process write its stacks there when it is asked by `ASK`, and when it crashes. That
    needs nothing of the interpreter, whatever it is busy with."""
    faulthandler.enable(file=descriptor, all_threads=True)
    faulthandler.register(ASK, file=descriptor, all_threads=True, chain=False)


def read_stacks(file: IO[bytes]) -> str:
    """What was written there; "" = nothing."""
    file.seek(0)
    return file.read().decode(errors="replace")


def main_stack(stacks: str) -> str:
    """The part that is about the main thread of a rank, the latest call first; "" = none is."""
    return next((part for part in stacks.split("\n\n") if MARK in part), "")


def own_stack(thread: int | None) -> str:
    """The same of a thread of this process."""
    frame: FrameType | None = sys._current_frames().get(thread) if thread else None
    calls = traceback.extract_stack(frame) if frame is not None else []
    shown = (f'  File "{one.filename}", line {one.lineno} in {one.name}' for one in calls[::-1])
    return "\n".join(shown)


def waits_for_others(stack: str) -> bool:
    """Whether it is inside a collective."""
    calls = [line for line in stack.splitlines() if line.lstrip().startswith("File ")]
    return any(COLLECTIVE in line for line in calls[:8])


def innermost(stack: str) -> str:
    """The call that has not returned, in a few words."""
    calls = [line.strip() for line in stack.splitlines() if line.lstrip().startswith("File ")]
    return calls[0].removeprefix("File ") if calls else ""
