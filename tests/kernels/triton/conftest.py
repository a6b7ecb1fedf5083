"""Where Triton's kernels are tested: on a GPU, or else in the interpreter on the host."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

HERE = Path(__file__).parent
GPU = torch.cuda.is_available()
ALL = GPU or os.environ.get("JACKFIELD_ALL_KERNELS") == "1"
"""Whether nothing is left out that the interpreter takes long for."""
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL:
        return
    # Tests of all folders come by here.
    ours = [item for item in items if HERE in item.path.parents]
    values: dict[tuple[str, str], list[str]] = {}
    for item in ours:
        for name, value in parameters(item):
            found = values.setdefault(name, [])
            found += [] if value in found else [value]
    left_out = {item for item in ours if not is_chosen(item, values)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def parameters(item: pytest.Item) -> list[tuple[tuple[str, str], str]]:
    """(test, names of what varies together), and the values."""
    test = item.nodeid.partition("[")[0]
    values = getattr(getattr(item, "callspec", None), "params", {})
    marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [tuple(each.split(",")) if isinstance(each, str) else tuple(each) for each in marks]
    groups += [(name,) for name in values if not any(name in group for group in groups)]
    return [((test, str(group)), repr([values[name] for name in group])) for group in groups]


def is_chosen(item: pytest.Item, values: dict[tuple[str, str], list[str]]) -> bool:
    """Of a test's combinations, as many as its longest parameter has values; they hold them all."""
    if item.get_closest_marker("all_kernels"):
        return False
    found = parameters(item)
    if not item.get_closest_marker("few_combinations") or not found:
        return True
    places = {name: values[name].index(value) for name, value in found}
    longest = max(places, key=lambda name: len(values[name]))
    return all(at == places[longest] % len(values[name]) for name, at in places.items())


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if GPU else "cpu")


@pytest.fixture(
    params=[torch.float32, torch.float16, *([] if INTERPRETED else [torch.bfloat16])],
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
def beside() -> Callable[[str], ModuleType]:
    """`beside("name")`: the module of that name beside this file."""

    def load(name: str) -> ModuleType:
        spec = spec_from_file_location(name, HERE / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def sampling(beside: Callable[[str], ModuleType]) -> Any:
    """The definition of what the sampler should do."""
    return beside("sampling")
