"""Twenty deaths under load of either process of `jackfield serve`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 20


def test_the_engine_is_killed(tmp_path: Path, http_tests: Callable[[str], Any]) -> None:
    death = http_tests("test_death")
    folder = death.long_model(tmp_path / "model")
    death.deaths_of_the_engine(folder, tmp_path / "log", ROUNDS)


def test_the_server_is_killed(tmp_path: Path, http_tests: Callable[[str], Any]) -> None:
    death = http_tests("test_death")
    folder = death.long_model(tmp_path / "model")
    death.deaths_of_the_server(folder, tmp_path / "log", ROUNDS)
