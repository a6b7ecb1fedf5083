"""Does this environment hold the checkout, as it is now, and all that its checks need?

Arguments: further distributions that it must hold. The exit status is the answer.
"""

import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def main(tools: Iterable[str]) -> bool:
    """Whether nothing is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = find_spec("jackfield")
    if own is None or not Path(str(own.origin)).is_relative_to(ROOT):
        return False
    wanted = [*tools, *project["dependencies"], *project["optional-dependencies"]["test"]]
    return all(map(is_installed, wanted)) and entry_points() == stated_entry_points(project)


def is_installed(requirement: str) -> bool:
    """Whether a version that the requirement allows is there."""
    from packaging.requirements import Requirement

    parsed = Requirement(requirement)
    try:
        return version(parsed.name) in parsed.specifier
    except PackageNotFoundError:
        return False


def entry_points() -> set[tuple[str, str, str]]:
    """Those of the installed metadata, which an editable install does not bring up to date."""
    points = distribution("jackfield").entry_points
    return {(point.group, point.name, point.value) for point in points}


def stated_entry_points(project: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """Those of pyproject.toml."""
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    return {(group, *point) for group, points in groups.items() for point in points.items()}


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
