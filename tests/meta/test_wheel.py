"""The distributions hold exactly what is tracked, package data included."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "plugins", "server")
OWN = ("src/jackfield/__init__.py", "src/jackfield/py.typed")
pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="needs a git checkout"
)


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """Every file of the rooms that git knows, or would take with the next commit."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOMS, *OWN]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).is_file()}


def build(source: Path, target: Path, kind: str) -> Path:
    options = ["--no-isolation", f"--{kind}", "--outdir", str(target)]
    command = [sys.executable, "-m", "build", *options, str(source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def contents(wheel: Path) -> dict[str, int]:
    """The files of a wheel and their checksums, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            entry.filename: entry.CRC
            for entry in archive.infolist()
            if ".dist-info/" not in entry.filename
        }


def test_wheel_is_what_is_tracked(wheel: Path, tracked: set[str]) -> None:
    assert {f"jackfield/{name.removeprefix('src/jackfield/')}" for name in tracked} == set(
        contents(wheel)
    )


def test_the_rooms_are_not_empty(tracked: set[str]) -> None:
    assert {name.split("/")[0] for name in tracked} == {*ROOMS, "src"}
    assert {Path(name).suffix for name in tracked} >= {".py", ".c", ".h", ".typed"}


def test_sdist_is_what_is_tracked(sdist: Path, tracked: set[str]) -> None:
    with tarfile.open(sdist) as archive:
        names = {entry.name.partition("/")[2] for entry in archive.getmembers() if entry.isfile()}
    assert {name for name in names if name.split("/")[0] in (*ROOMS, "src")} == tracked
    assert names >= {"pyproject.toml", "README.md", "LICENSE", "noxfile.py", "constraints.txt"}


def test_wheel_from_the_sdist_is_the_same(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        # Pythons before 3.11.4 do not know filters.
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "source", **safely)
    (source,) = (tmp_path / "source").iterdir()
    assert contents(build(source, tmp_path / "wheel", "wheel")) == contents(wheel)


def test_metadata_names_the_licence_and_the_entry_points(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        points = next(name for name in names if name.endswith("/entry_points.txt"))
        text = archive.read(points).decode()
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    for group in ("schedulers", "caches", "kernels", "models"):
        assert f"[jackfield.v1.{group}]" in text


def test_no_ignore_file_hides_a_room() -> None:
    command = ["git", "check-ignore", "--no-index", *ROOMS, *(f"{room}/x.py" for room in ROOMS)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
