"""The data behind `plugins list`, `plugins check` and `config schema`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jackfield.core.host.discover import discover_all
from jackfield.core.host.report import CheckRow, PluginRow, check_plugins, list_plugins
from jackfield.core.host.schema import config_schema
from jackfield.core.host.selection import select
from jackfield.core.host.sources import load_config

Install = Callable[..., Path]
BROKEN = "raise RuntimeError('imported')"
POLICY = """
from jackfield.core.api import Discipline, PolicyConfig, hookimpl

class FairConfig(PolicyConfig):
    quantum: int = 8

class Fair(Discipline):
    Config = FairConfig
    @hookimpl
    def observe(self, events):
        pass

class NeedyConfig(PolicyConfig):
    limit: int

class Needy(Discipline):
    Config = NeedyConfig
"""
KERNELS = """
from jackfield.core.api import KernelPlugin

class Odd(KernelPlugin):
    def operations(self):
        return {"attention": None, "teleport": None}
"""


def listed(name: str, flags: dict[str, Any] | None = None) -> list[PluginRow]:
    rows = list_plugins(load_config(flags=flags).config, discover_all())
    return [row for row in rows if row.name == name]


def checked(*kinds: str) -> dict[str, CheckRow]:
    """The rows of these kinds; the others are left out, they need tensors."""
    catalogues = discover_all()
    empty = {kind: type(c)(kind, (), ()) for kind, c in catalogues.items() if kind not in kinds}
    return {row.name: row for row in check_plugins({**catalogues, **empty})}


def test_list_tells_what_is_active_and_imports_nothing(install: Install) -> None:
    install("broken", {"schedulers": {"fair": "broken_list:Fair"}}, "2.0", broken_list=BROKEN)
    assert listed("fair") == [
        PluginRow(
            "schedulers", "fair", "broken", "2.0", 1, False,
            "not in scheduler.stack or scheduler.advisors",
        )
    ]  # fmt: skip
    (row,) = listed("fair", {"scheduler.stack": ["broken:fair"]})
    assert (row.active, row.reason) == (True, "in scheduler.stack")
    assert "broken_list" not in sys.modules


def test_list_tells_the_implicit_leaf_and_the_models() -> None:
    (leaf,) = listed("fcfs", {"scheduler.stack": ["priority"]})
    assert leaf.active
    assert "leaf" in leaf.reason
    (model,) = listed("LlamaForCausalLM")
    assert (model.active, model.reason) == (False, "chosen by the checkpoint")
    (chosen,) = listed("LlamaForCausalLM", {"model.architecture": "LlamaForCausalLM"})
    assert chosen.active


def test_list_tells_other_versions_and_conflicts(install: Install) -> None:
    install("future", {"caches": {"ahead": "future:Ahead"}}, api=2)
    install("one", {"schedulers": {"fair": "one:Fair"}})
    install("two", {"schedulers": {"fair": "two:Fair"}})
    (foreign,) = listed("ahead")
    assert (foreign.api, foreign.active) == (2, False)
    assert "speaks version 2" in foreign.reason
    rows = listed("fair", {"scheduler.stack": ["fair"]})
    assert [row.active for row in rows] == [False, False]
    assert all('"one:fair" or "two:fair"' in row.reason for row in rows)
    chosen = listed("fair", {"scheduler.stack": ["two:fair"]})
    assert {row.distribution: row.active for row in chosen} == {"one": False, "two": True}


def test_check_imports_everything(install: Install, plain_kernel: str) -> None:
    groups = {
        "schedulers": {"fair": "checked:Fair", "needy": "checked:Needy", "gone": "missing:X"},
        "caches": {"wrong": "checked:Fair"},
    }
    install("checked", groups, checked=POLICY)
    install("future", {"caches": {"ahead": "future:Ahead"}}, api=2)
    rows = checked("schedulers", "caches")
    assert (rows["fair"].ok, rows["fair"].provides) == (True, ("observe",))
    assert (rows["fcfs"].ok, rows["paged"].provides) == (True, ("layout",))
    assert "limit" in rows["needy"].message
    assert "ModuleNotFoundError" in rows["gone"].message
    assert "is no CachePlugin" in rows["wrong"].message
    assert "speaks version 2" in rows["ahead"].message
    assert [rows[n].ok for n in ("needy", "gone", "wrong", "ahead")] == [False] * 4


def test_check_of_a_plugin_for_two_versions_is_fine(install: Install) -> None:
    install("both", {"schedulers": {"fair": "checked:Fair"}}, checked=POLICY)
    install("both", {"schedulers": {"fair": "later:Fair"}}, api=2)
    assert checked("schedulers")["fair"].ok


def test_check_lists_operations(install: Install, plain_kernel: str) -> None:
    install("odd", {"kernels": {"odd": "odd:Odd"}}, odd=KERNELS)
    catalogue = discover_all()["kernels"]
    ours = tuple(found for found in catalogue.usable if found.name in ("plain", "odd"))
    empty = {kind: type(c)(kind, (), ()) for kind, c in discover_all().items()}
    rows = check_plugins({**empty, "kernels": type(catalogue)("kernels", ours, ())})
    assert {row.name: row.provides for row in rows} == {"odd": (), "plain": ("attention", "rope")}
    assert "unknown operations: teleport" in rows[0].message


def test_schema_holds_the_sections_of_selected_plugins(
    install: Install, plain_kernel: str
) -> None:
    install("checked", {"schedulers": {"fair": "checked:Fair"}}, checked=POLICY)
    config = load_config(flags={"scheduler.stack": ["fair"], "kernel.stack": ["plain"]}).config
    schema = config_schema(select(config, discover_all()).all)
    sections = schema["$defs"]
    assert schema["$ref"] == "#/$defs/Config"
    assert sections["SchedulerConfig"]["properties"]["fair"] == {"$ref": "#/$defs/FairConfig"}
    assert sections["FairConfig"]["properties"]["quantum"]["default"] == 8
    assert sections["CacheConfig"]["properties"]["paged"] == {"$ref": "#/$defs/PagedConfig"}
    assert sections["EngineConfig"]["properties"]["overlap"]["anyOf"][0]["maximum"] == 2
    assert "needy" not in sections["SchedulerConfig"]["properties"]
