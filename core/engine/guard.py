"""Calls into plugins: each alone, timed, and contained."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger("jackfield.plugins")
WINDOW, SLOW_WINDOW = 10_000, 100
LONGEST_SHOWN = 200


class OutOfContract(Exception):
    """An answer breaks the contract of its hook; the message says how."""


def shown(value: object) -> str:
    """The value for a message: never raises, never long."""
    try:
        text = repr(value)
    except Exception:
        text = f"an unprintable {type(value).__name__}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


class Guard:
    """Counts the faults of one plugin. `limit` of them within 10 000 calls switch it off for good.

    A fault is an exception, an answer that breaks the contract, or a call over `budget` seconds. Of
    those `limit` within 100 calls are needed: what stops the whole process for a moment, such as a
    host short of memory, falls into somebody's call now and then.
    """

    def __init__(self, plugin: str, limit: int, budget: float) -> None:
        self.plugin = plugin
        self.faults = 0
        self.slow_calls = 0
        self.last_fault: str | None = None
        self.off = False
        self._calls = 0
        self._recent: deque[int] = deque(maxlen=limit)
        self._recently_slow: deque[int] = deque(maxlen=limit)
        self._limit = limit
        self._budget = budget

    def call(self, default: T, hook: Callable[..., Any], *arguments: Any) -> T | Any:
        """What the hook returns, or `default` if it raises."""
        return self.ask(default, _as_it_is, hook, *arguments)

    def ask(
        self,
        default: T,
        check: Callable[[Any], T],
        hook: Callable[..., Any],
        *arguments: Any,
    ) -> T:
        """What `check` makes of the hook's answer, or `default` if the hook or `check` raises.

        Answers are objects of the plugin: whatever looks at them can raise too.
        """
        self._calls += 1
        start = perf_counter()
        try:
            return check(hook(*arguments))
        except OutOfContract as error:
            self.fault(f"{_name(hook)} {error}")
        except Exception as error:
            self.fault(f"{_name(hook)} raised {shown(error)}")
        finally:
            if perf_counter() - start > self._budget:
                self._slow(hook, perf_counter() - start)
        return default

    def each(self, hook: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
        """Make many short calls whose answers do not matter; their time is taken as a whole."""
        self._calls += len(calls)
        start = perf_counter()
        for arguments in calls:
            try:
                hook(*arguments)
            except Exception as error:
                self.fault(f"{_name(hook)} raised {shown(error)}")
        if perf_counter() - start > self._budget:
            self._slow(hook, perf_counter() - start)

    def fault(self, what: str) -> None:
        """Charge one fault to the plugin."""
        self._charge(what, self._recent, WINDOW)

    def _charge(self, what: str, recent: deque[int], window: int) -> None:
        self.faults += 1
        self.last_fault = what
        recent.append(self._calls)
        often = len(recent) == self._limit and self._calls - recent[0] < window
        was_off, self.off = self.off, self.off or often
        if not was_off:
            state = "it is switched off" if self.off else f"fault {self.faults}"
            log.warning("plugin %s: %s (%s)", self.plugin, what, state)

    def _slow(self, hook: Callable[..., Any], seconds: float) -> None:
        self.slow_calls += 1
        budget = f"its budget is {self._budget * 1e3:.1f} ms"
        what = f"{_name(hook)} took {seconds * 1e3:.1f} ms; {budget}"
        self._charge(what, self._recently_slow, SLOW_WINDOW)


def _as_it_is(answer: Any) -> Any:
    return answer


def _name(hook: Callable[..., Any]) -> str:
    return str(getattr(hook, "__name__", type(hook).__name__)).lstrip("_")
