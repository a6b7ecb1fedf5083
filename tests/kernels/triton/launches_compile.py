"""A plugin of pytest: tests of kernels compile all that they launch for a GPU, and launch nothing.

There need be none. What a test computes means nothing then, so it only fails where a launch does
not compile, or wants more of the device than it has. Run with TRITON_INTERPRET=0.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from triton.compiler.errors import CompilationError
from triton.runtime import driver
from triton.runtime.errors import OutOfResources, PTXASError

from jackfield.plugins.kernels.triton import support

sys.path.insert(0, str(Path(__file__).parent))

from pretended_driver import ARCH, Driver

FAULTS = (CompilationError, OutOfResources, PTXASError)

driver.set_active(Driver())  # type: ignore[arg-type]
support.capability = lambda device: ARCH
support.architecture = lambda device: f"sm_{ARCH}"
support.num_processors = lambda device, elsewhere: elsewhere
support.reasons = lambda *asked: []
support.interpreted = lambda: False


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if report.failed and not any(isinstance(one, FAULTS) for one in chain(error)):
        report.outcome = "passed"
    return report
