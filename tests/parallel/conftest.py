import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch


def _load_module(path: Path) -> ModuleType:
    name = f"{path.parent.name}_{path.stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for theirs
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def divided() -> ModuleType:
    """The module beside this file."""
    return _load_module(Path(__file__).with_name("divided.py"))


@pytest.fixture(scope="session")
def load_module() -> Callable[[Path], ModuleType]:
    """Test modules are not on the import path."""
    return _load_module


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
