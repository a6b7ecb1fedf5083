"""Every way in which a plugin can be wrong, and who is named."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jackfield.core.api import (
    PluginConflict,
    PluginContractError,
    PluginLoadError,
    PluginNotFound,
    PluginVersionError,
)
from jackfield.core.host.discover import discover
from jackfield.core.host.loader import Loaded, load

Install = Callable[..., Path]
GOOD = """
from jackfield.core.api import Discipline

class Fair(Discipline):
    pass
"""
KINDS_SOURCE = """
from jackfield.core.api import CacheAxis, CachePlugin, Discipline, KernelPlugin, hookimpl

class Advisor:
    def __init__(self, config, context): pass
    @hookimpl
    def observe(self, events): pass

class Nothing:
    pass

class Cache(CachePlugin):
    axis = CacheAxis.ALLOCATOR

class NoAxis(CachePlugin):
    pass

class Kernel(KernelPlugin):
    pass

class Half:
    def describe(self): pass
    def forward(self): pass

class Whole(Half):
    def logits(self): pass

class WrongConfig(Discipline):
    Config = dict

instance = Discipline(None, None)

def function(config, context):
    return instance
"""


def loaded(name: str, kind: str = "schedulers") -> Loaded:
    return load(kind, name, discover(kind))


def test_a_good_plugin(install: Install) -> None:
    install("good", {"schedulers": {"fair": "good:Fair"}}, good=GOOD)
    result = loaded("fair")
    assert (result.cls.__name__, result.found.distribution) == ("Fair", "good")


def test_a_typo_names_the_nearest() -> None:
    with pytest.raises(PluginNotFound, match=r"the scheduler plugin 'priorty'.*mean 'priority'"):
        loaded("priorty")


def test_an_unknown_distribution_names_the_nearest() -> None:
    with pytest.raises(PluginNotFound, match=r"'jackfeld:fcfs'.*mean 'jackfield:fcfs'"):
        loaded("jackfeld:fcfs")


def test_two_distributions_name_both_and_the_way_out(install: Install) -> None:
    install("one", {"schedulers": {"fair": "one:Fair"}}, "1.5", one=GOOD)
    install("two", {"schedulers": {"fair": "two:Fair"}}, "2.5", two=GOOD)
    with pytest.raises(PluginConflict) as caught:
        loaded("fair")
    for part in ("one 1.5", "two 2.5", '"one:fair" or "two:fair"'):
        assert part in str(caught.value)
    assert loaded("two:fair").cls.__module__ == "two"
    assert "one" not in sys.modules


def test_one_distribution_installed_twice_names_the_paths(install: Install) -> None:
    folders = [install("one", {"schedulers": {"fair": "one:Fair"}}, v, one=GOOD) for v in "12"]
    with pytest.raises(PluginConflict, match="more than once by one distribution") as caught:
        loaded("fair")
    assert all(str(folder) in str(caught.value) for folder in folders)


def test_another_version_of_the_contract(install: Install) -> None:
    install("future", {"schedulers": {"ahead": "future:Ahead"}}, api=2)
    with pytest.raises(PluginVersionError, match=r"future 1\.0\) speaks version 2.*host version 1"):
        loaded("ahead")


def test_a_plugin_that_speaks_both_versions_is_fine(install: Install) -> None:
    install("both", {"schedulers": {"fair": "both:Fair"}}, both=GOOD)
    install("both", {"schedulers": {"fair": "nowhere:Fair"}}, api=2)
    assert loaded("fair").found.api_version == 1


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import a_module_that_is_missing", "ModuleNotFoundError: No module named 'a_module_that"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise SystemExit", "SystemExit;"),
        ("class Fair: (", "SyntaxError"),
        ("raise BaseException('a\\nb')", "BaseException: a b;"),
        ("Other = 3", "AttributeError: module 'broken' has no attribute 'Fair'"),
    ],
)
def test_an_import_that_fails_names_who_and_why(install: Install, source: str, cause: str) -> None:
    install("broken-dist", {"schedulers": {"fair": "broken:Fair"}}, "0.3", broken=source)
    with pytest.raises(PluginLoadError) as caught:
        loaded("fair")
    message = str(caught.value)
    assert "'fair' (broken:Fair, from broken-dist 0.3) cannot be imported" in message
    assert cause in message
    assert "uninstall it or choose another" in message


def test_an_interrupt_is_not_caught(install: Install) -> None:
    install("slow", {"schedulers": {"fair": "slow:Fair"}}, slow="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        loaded("fair")


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("schedulers", "mixed:instance", "is an instance of Discipline, but should be a class"),
        ("schedulers", "mixed:function", "is the function function, but should be a class"),
        ("schedulers", "mixed", "is the module mixed; the entry point should end in ':Class'"),
        ("schedulers", "mixed:Nothing", "Nothing is no Discipline and has no method marked"),
        ("schedulers", "mixed:WrongConfig", "Config that is no subclass of PolicyConfig"),
        ("caches", "mixed:Kernel", "Kernel is no CachePlugin"),
        ("caches", "mixed:NoAxis", "NoAxis has no axis; it should be one of allocator"),
        ("kernels", "mixed:Cache", "Cache is no KernelPlugin"),
        ("models", "mixed:Half", "Half has no logits"),
    ],
)
def test_a_wrong_type_is_told(install: Install, kind: str, value: str, problem: str) -> None:
    install("mixed-dist", {kind: {"wrong": value}}, mixed=KINDS_SOURCE)
    with pytest.raises(PluginContractError) as caught:
        loaded("wrong", kind)
    assert "from mixed-dist 1.0" in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("schedulers", "Advisor"), ("caches", "Cache"), ("kernels", "Kernel"), ("models", "Whole")],
)
def test_each_kind_takes_its_own(install: Install, kind: str, name: str) -> None:
    install("mixed-dist", {kind: {"right": f"mixed:{name}"}}, mixed=KINDS_SOURCE)
    assert loaded("right", kind).cls.__name__ == name
