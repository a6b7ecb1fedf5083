"""Distributions made on the spot: metadata, entry points and modules in folders on `sys.path`."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from jackfield.core.api import PolicyContext

Install = Callable[..., Path]
PLAIN_KERNEL = """
from jackfield.core.api import KernelPlugin

class Plain(KernelPlugin):
    def operations(self):
        return {"attention": object(), "rope": object()}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install("dist", {"schedulers": {"name": "module:Class"}}, module="source")`: its folder."""

    def make(
        name: str,
        groups: Mapping[str, Mapping[str, str]],
        version: str = "1.0",
        api: int = 1,
        **modules: str,
    ) -> Path:
        folder = tmp_path / f"site{len(list(tmp_path.iterdir()))}"
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [
            line
            for kind, points in groups.items()
            for line in (f"[jackfield.v{api}.{kind}]", *(f"{k} = {v}" for k, v in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, source in modules.items():
            (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        return folder

    yield make
    for module, loaded in list(sys.modules.items()):
        if (getattr(loaded, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[module]


@pytest.fixture
def plain_kernel(install: Install) -> str:
    """The name of a kernel plugin that needs no tensors."""
    groups = {"kernels": {"plain": "plain_kernels:Plain"}}
    install("plain-kernels", groups, plain_kernels=PLAIN_KERNEL)
    return "plain"


def make_context(name: str) -> PolicyContext:
    """A context for any policy."""
    return PolicyContext(Random(0), lambda: 0.0, 4, 64, 128, 16)


@pytest.fixture(name="make_context")
def make_context_fixture() -> Callable[[str], PolicyContext]:
    """The `make_context` of `build_stack`."""
    return make_context
