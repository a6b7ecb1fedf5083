"""A thousand requests whose clients go at any point leave nothing behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_thousand(folder: Path, serve: Any, http_tests: Callable[[str], Any]) -> None:
    abandoned = http_tests("test_abandoned")
    with serve(folder, **abandoned.ENGINE) as site:
        phases = abandoned.nothing_is_left(site, 1000)
    assert all(phases[phase] >= 25 for phase in ("queue", "prompt", "answer")), phases
