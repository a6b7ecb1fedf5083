"""Notes which kernels a thread launches, in the place of launching them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from threading import Lock, get_ident
from typing import Any

from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from jackfield.plugins.kernels.triton.compiling import Wanted, is_ours

ONE_AT_A_TIME = Lock()
"""Of those who note: who ends first would put the other's changes back."""


class Notes:
    """What one thread launches is noted; others launch as they always do.

    What was launched before counts, too: it might read what those should have written that were
    not. wanted: our kernels, each once. foreign: names of others, which nobody but their owners can
    make; they are compiled at their first launch after this. tell: called with each of ours, once.
    """

    def __init__(self, arch: int, tell: Callable[[Wanted], None] = lambda wanted: None) -> None:
        self.wanted: list[Wanted] = []
        self.foreign: set[str] = set()
        self._arch = arch
        self._tell = tell
        self._thread = get_ident()
        self._doubles: dict[int, tuple[Any, Any]] = {}

    def concerns(self) -> bool:
        """Whether this is the thread."""
        return get_ident() == self._thread

    def launched(self, kernel: Any, run: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """In the place of a launch. run: what would have launched it."""
        if not (isinstance(kernel, JITFunction) and is_ours(kernel.module)):
            self.foreign.add(_name_of(kernel))
            return
        if id(kernel) not in self._doubles:
            # The kernel itself stays as it is, with all that it has compiled: others may use it.
            double = copy(kernel)
            double.device_caches = defaultdict(double.create_binder)
            self._doubles[id(kernel)] = kernel, double
        double = self._doubles[id(kernel)][1]
        run(double, *arguments, **named | {"warmup": True})

    def found(self, *, key: str, fn: Any, **told: Any) -> bool:
        """As Triton calls it before it compiles; True = it need not."""
        caches = fn.jit_function.device_caches[told["compile"]["device"]]
        caches[0][key] = fn
        data = told["compile"]["specialization_data"]
        wanted = Wanted(fn.module, fn.name, data, self._arch)
        self.wanted.append(wanted)
        self._tell(wanted)
        return True


@contextmanager
def noted(notes: Notes) -> Iterator[Notes]:
    """Within it, this thread launches no kernel of Triton's."""
    with ONE_AT_A_TIME, ExitStack() as stack:
        before, run_compiled = knobs.runtime.jit_cache_hook, CompiledKernel.run

        def hook(**told: Any) -> Any:
            if notes.concerns():
                return notes.found(**told)
            return before(**told) if before else None

        def run_of(kernel: Any) -> Any:
            return _nothing if notes.concerns() else run_compiled.fget(kernel)

        stack.enter_context(_changed(knobs.runtime, "jit_cache_hook", hook))
        stack.enter_context(_changed(CompiledKernel, "run", property(run_of)))
        for kind in (JITFunction, Autotuner):
            stack.enter_context(_changed(kind, "run", _instead(kind.run, notes)))
        yield notes


def _instead(run: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    def launch(kernel: Any, *arguments: Any, **named: Any) -> Any:
        if notes.concerns():
            return notes.launched(kernel, run, *arguments, **named)
        return run(kernel, *arguments, **named)

    return launch


@contextmanager
def _changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _name_of(kernel: Any) -> str:
    function = getattr(kernel, "base_fn", None) or getattr(kernel, "fn", kernel)
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def _nothing(*arguments: Any) -> None:
    """In the place of a launch of what is compiled already."""
