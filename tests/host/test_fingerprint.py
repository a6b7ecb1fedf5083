"""Processes of one engine compare what they selected."""

import pytest

from jackfield.core.api import PluginError
from jackfield.core.host.discover import Found
from jackfield.core.host.fingerprint import Fingerprint


def found(name: str, version: str = "1.0", path: str = "/a") -> Found:
    return Found("schedulers", name, f"module:{name}", "dist", version, 1, path)


BASE = Fingerprint.of([found("priority"), found("fcfs")])


def test_equal_selections_agree_wherever_they_are_installed() -> None:
    other = Fingerprint.of([found("priority", path="/b"), found("fcfs", path="/b")])
    assert other == BASE
    BASE.check_same(other)


def test_the_digest_is_the_same_in_every_process() -> None:
    assert BASE.digest == (
        "75659a0543577e1cd721a34b4a4bf2f2f78ae52836cf4c589644e54445696767"
    )


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ([found("fcfs")], r"'priority' is dist 1\.0 \(module:priority\) here and missing there"),
        (
            [found("priority"), found("fair"), found("fcfs")],
            r"'fair' is missing here and dist 1\.0 \(module:fair\) there",
        ),
        ([found("priority", "1.1"), found("fcfs")], r"is dist 1\.0 .* here and dist 1\.1 .* there"),
        ([found("fcfs"), found("priority")], "the order of the stack differs"),
    ],
)
def test_differences_are_named(other: list[Found], difference: str) -> None:
    with pytest.raises(PluginError, match=f"{difference}.*install the same packages everywhere"):
        BASE.check_same(Fingerprint.of(other))
