"""Files of configuration, and distributions made on the spot."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("JACKFIELD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a configuration file."""

    def write(text: str) -> Path:
        path = tmp_path / "jackfield.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`install("module", source, server={"name": "Class"})`: the folder on `sys.path`."""

    def make(module: str, source: str, **groups: dict[str, str]) -> Path:
        folder = tmp_path / f"site-{module}"
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [
            line
            for kind, points in groups.items()
            for line in (
                f"[jackfield.v1.{kind}]",
                *(f"{name} = {module}:{cls}" for name, cls in points.items()),
            )
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        return folder

    return make
