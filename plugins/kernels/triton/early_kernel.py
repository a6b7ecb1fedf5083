"""Launches that begin before the kernel in front of them ends: the kernel's side."""

import triton
import triton.language as tl


@triton.jit
def wait_for_previous(EARLY: tl.constexpr):
    """Lets the next launch begin, then waits until all is written that ran before. Nothing that
    another kernel writes may be read, and nothing written, before this."""
    let_next_begin(EARLY)
    wait_alone(EARLY)


@triton.jit
def let_next_begin(EARLY: tl.constexpr):
    """The first half of `wait_for_previous`, for kernels that wait first."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_alone(EARLY: tl.constexpr):
    """The same for a kernel that fills the device: the next launch would take room from programs
    of it that have not begun, so it begins when they have all ended."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
