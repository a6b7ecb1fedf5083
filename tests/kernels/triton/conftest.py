"""Where Triton's kernels are tested: on a GPU, or else in the interpreter on the host."""

from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

GPU = torch.cuda.is_available()

if find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if GPU else "cpu")


@pytest.fixture(
    params=[torch.float32, torch.float16, *([torch.bfloat16] if GPU else [])],
    ids=lambda dtype: str(dtype).removeprefix("torch."),
)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The interpreter gets bfloat16 wrong."""
    chosen: torch.dtype = request.param
    return chosen


@pytest.fixture(autouse=True)
def on_device(device: torch.device) -> Iterator[None]:
    """New tensors are made where the kernels run, and no number there is worth a warning."""
    torch.manual_seed(0)
    with device, np.errstate(all="ignore"):
        yield


@pytest.fixture(scope="session")
def config() -> Any:
    from jackfield.plugins.kernels.triton.support import TritonConfig

    return TritonConfig(interpret=not GPU)


@pytest.fixture(scope="session")
def sampling() -> Any:
    """The definition of what the sampler should do: the module beside this file."""
    path = Path(__file__).with_name("sampling.py")
    spec = spec_from_file_location("sampling", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
