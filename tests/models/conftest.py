from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The module beside this file; test modules are not on the import path."""
    spec = spec_from_file_location("reference_ops", Path(__file__).with_name("reference_ops.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
