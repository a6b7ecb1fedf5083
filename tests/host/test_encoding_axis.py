"""One plugin of a stack says how keys and values are stored."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jackfield.core.api import PluginConflict, PolicyContext
from jackfield.core.executors.encoder import encoder_of
from jackfield.core.host.sources import load_config
from jackfield.core.host.stack import build_stack

Install = Callable[..., Path]
MakeContext = Callable[[str], PolicyContext]
ENCODERS = """
from jackfield.core.api import CacheAxis, CachePlugin, hookimpl

class Other(CachePlugin):
    axis = CacheAxis.ENCODING
    @hookimpl
    def encode(self, spec):
        return None

class Hidden(Other):
    axis = CacheAxis.TIER
"""


@pytest.fixture(autouse=True)
def encoders(install: Install) -> None:
    groups = {"caches": {"other": "encoders:Other", "hidden": "encoders:Hidden"}}
    install("encoders", groups, encoders=ENCODERS)


def flags(stack: list[str], kernel: str) -> dict[str, list[str]]:
    return {"cache.stack": stack, "kernel.stack": [kernel]}


def test_two_owners_of_the_axis_are_refused(plain_kernel: str, make_context: MakeContext) -> None:
    config = load_config(flags=flags(["paged", "fp8", "other"], plain_kernel)).config
    with pytest.raises(PluginConflict, match=r"axis 'encoding'.*'fp8'.*'other'"):
        build_stack(config, make_context=make_context)


def test_the_hook_has_one_owner_whatever_the_axis(
    plain_kernel: str, make_context: MakeContext
) -> None:
    config = load_config(flags=flags(["paged", "fp8", "hidden"], plain_kernel)).config
    with pytest.raises(PluginConflict, match="hook 'encode'"):
        build_stack(config, make_context=make_context)


@pytest.mark.parametrize(
    ("stack", "owner"),
    [(["paged"], None), (["paged", "fp8"], "fp8"), (["paged", "other"], "other")],
)
def test_the_owner_is_found(
    plain_kernel: str, make_context: MakeContext, stack: list[str], owner: str | None
) -> None:
    config = load_config(flags=flags(stack, plain_kernel)).config
    encoder = encoder_of(build_stack(config, make_context=make_context).manager)
    assert (encoder.plugin if encoder else None) == owner
