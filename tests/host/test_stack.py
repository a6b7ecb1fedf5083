"""A configuration becomes plugins: the selected ones only, in order, with validated sections."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import (
    CacheAxis,
    ConfigError,
    ModelNotFound,
    PluginConflict,
    PluginContractError,
    PluginError,
    PluginLoadError,
    PluginNotFound,
    PolicyContext,
)
from jackfield.core.host.discover import discover_all
from jackfield.core.host.selection import effective, select
from jackfield.core.host.sources import load_config
from jackfield.core.host.stack import Stack, build_stack, load_model_class

Install = Callable[..., Path]
MakeContext = Callable[[str], PolicyContext]
POLICIES = """
from pydantic import Field
from jackfield.core.api import CacheAxis, CacheLayout, CachePlugin, ConfigError, Discipline
from jackfield.core.api import KernelPlugin, PolicyConfig, hookimpl

class FairConfig(PolicyConfig):
    quantum: int = Field(8, ge=1)
    weights: dict[str, int] = {}

class Fair(Discipline):
    Config = FairConfig

class Fair2(Fair):
    pass

class Classes(Discipline):
    made = 0
    def __init__(self, config, context):
        super().__init__(config, context)
        Classes.made += 1
    def classify(self, request):
        return request.context.priority

class Seats(Classes):
    @hookimpl
    def victims(self, shortage):
        return []

class Planner(Classes):
    @hookimpl
    def plan(self, step, planner):
        pass

class Shortest(Discipline):
    def key(self, request, now):
        return 1.0

class Owner:
    def __init__(self, config, context):
        self.context = context
    @hookimpl
    def victims(self, shortage):
        return []

class Second(Owner):
    pass

class Both(Discipline):
    @hookimpl
    def observe(self, events):
        return "both"

class Misspelt(Discipline):
    @hookimpl
    def obserfe(self, events):
        pass

class Explodes(Discipline):
    def __init__(self, config, context):
        raise SystemExit("no")

class Refuses(Discipline):
    def __init__(self, config, context):
        raise ConfigError("quantum and weights exclude each other")

class Slabs(CachePlugin):
    axis = CacheAxis.ALLOCATOR
    @hookimpl
    def layout(self, max_model_len):
        return CacheLayout(64)

"""
NAMES = {
    "fair": "Fair", "shortest": "Shortest", "owner": "Owner", "second": "Second", "both": "Both",
    "fair2": "Fair2", "classes": "Classes", "seats": "Seats", "planner": "Planner",
    "misspelt": "Misspelt", "explodes": "Explodes", "refuses": "Refuses",
}  # fmt: skip


@pytest.fixture
def build(
    install: Install, plain_kernel: str, make_context: MakeContext
) -> Callable[..., Stack]:
    """`build({"scheduler.stack": [...]})`: the stack of these flags, with a plain kernel."""
    schedulers = {name: f"policies:{cls}" for name, cls in NAMES.items()}
    groups = {"schedulers": {**schedulers, "bad": "bad:Bad"}, "caches": {"slabs": "policies:Slabs"}}
    install("policies", groups, "3.2", policies=POLICIES, bad="raise RuntimeError('imported')")

    def make(flags: dict[str, Any]) -> Stack:
        resolved = load_config(flags={"kernel.stack": [plain_kernel], **flags})
        return build_stack(
            resolved.config, make_context=make_context, origins=resolved.origins
        )

    return make


def names(plugins: Any) -> list[str]:
    return [plugin.name for plugin in plugins]


def test_the_default_stack(build: Callable[..., Stack]) -> None:
    stack = build({})
    assert names(stack.disciplines) == ["priority", "fcfs"]
    assert names(stack.caches[CacheAxis.ALLOCATOR]) == ["paged"]
    assert names(stack.caches[CacheAxis.IDENTITY]) == ["prefix"]
    assert names(stack.kernels) == ["plain"]
    assert names(stack.versions) == [
        "priority", "fcfs", "paged", "prefix", "pin", "ttl", "lru", "plain"
    ]  # fmt: skip
    (layout,) = stack.manager.implementations("layout")
    assert layout.call(100).block_size == 16


def test_unselected_plugins_are_never_imported(build: Callable[..., Stack]) -> None:
    build({"scheduler.stack": ["fair"]})
    assert "policies" in sys.modules
    assert "bad" not in sys.modules


def test_a_selected_broken_plugin_stops(build: Callable[..., Stack]) -> None:
    with pytest.raises(PluginLoadError, match=r"'bad' \(bad:Bad, from policies 3\.2\).*imported"):
        build({"scheduler.stack": ["bad"]})


@pytest.mark.parametrize(
    ("given", "built"),
    [
        ([], ["fcfs"]),
        (["fair"], ["fair", "fcfs"]),
        (["jackfield:priority", "fair"], ["priority", "fair", "fcfs"]),
        (["fair", "shortest"], ["fair", "shortest"]),
        (["fair", "fair2"], ["fair", "fair2", "fcfs"]),
        (["fcfs"], ["fcfs"]),
    ],
)
def test_a_missing_leaf_is_fcfs(
    build: Callable[..., Stack], given: list[str], built: list[str]
) -> None:
    assert names(build({"scheduler.stack": given}).disciplines) == built


def test_a_stack_may_branch(build: Callable[..., Stack]) -> None:
    table = {"0": ["fair", "shortest"], "1": [], "*": ["classes", {"x": ["shortest"]}]}
    stack = build({"scheduler.stack": ["jackfield:priority", table]})
    order = stack.order
    assert order.here.name == "priority" and list(order.inner) == ["0", "1"]
    assert names(order.inner["0"].each()) == ["fair", "shortest"]
    assert names(order.inner["1"].each()) == ["fcfs"]
    assert order.other is not None and order.other.here.name == "classes"
    assert names(order.other.inner["x"].each()) == ["shortest"]
    assert order.other.other is not None and names(order.other.other.each()) == ["fcfs"]
    assert names(stack.versions)[:5] == ["priority", "fair", "shortest", "fcfs", "classes"]
    plugins = [named.plugin for named in stack.disciplines]
    assert len(plugins) == 7 and len(set(map(id, plugins))) == 7, "one instance for each place"


def test_other_branches_are_another_fingerprint(build: Callable[..., Stack]) -> None:
    first = build({"scheduler.stack": ["classes", {"0": ["shortest"]}]}).fingerprint()
    second = build({"scheduler.stack": ["classes", {"1": ["shortest"]}]}).fingerprint()
    assert first.plugins == second.plugins and first.digest != second.digest
    with pytest.raises(PluginError, match="the order of the stack differs"):
        first.check_same(second)


def test_branches_share_a_section(build: Callable[..., Stack]) -> None:
    table = {"0": ["fair"], "*": ["fair"]}
    stack = build({"scheduler.stack": ["classes", table], "scheduler.fair.quantum": 3})
    fair = [named.plugin for named in stack.disciplines if named.name == "fair"]
    assert [one.config.quantum for one in fair] == [3, 3] and fair[0] is not fair[1]


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ([{"0": ["fair"]}], "a table needs a plugin before it"),
        (["classes", {"0": ["fair"]}, "fair"], "something follows the table"),
        (["classes", {}], "the table is empty"),
        (["classes", {"0": "fair"}], "'fair' is no list"),
        (["classes", {0: ["fair"]}], "the key 0 is no text"),
        (["classes", 3], "3 is neither"),
        (["classes", {"0": [""]}], "an entry is empty"),
        (["classes", {"0": ["x:classes"]}], "once on a way down; repeated: classes"),
        (["fair", "fair"], "once on a way down; repeated: fair"),
        (["fair", {"0": []}], "makes no classes that it could branch on"),
        (["shortest", "fair"], "has fair below .*'shortest'.*put shortest last"),
        (["shortest", {"0": []}], "has a table below .*'shortest'.*put shortest last"),
        (["fcfs", {"0": []}], "should end in 'fcfs'"),
        (["classes", {"0": ["owner"]}], "orders nothing; name it in scheduler.advisors"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(
    build: Callable[..., Stack], stack: list[Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build({"scheduler.stack": stack})


@pytest.mark.parametrize(("name", "hook"), [("seats", "victims"), ("planner", "plan")])
def test_one_plugin_at_two_places_may_not_own_a_hook(
    build: Callable[..., Stack], name: str, hook: str
) -> None:
    build({"scheduler.stack": ["classes", {"0": [name]}]})
    with pytest.raises(PluginConflict, match=f"only one plugin may implement the hook '{hook}'"):
        build({"scheduler.stack": ["classes", {"0": [name], "*": [name]}]})


def test_hooks_of_each_instance_are_called(build: Callable[..., Stack]) -> None:
    stack = build({"scheduler.stack": ["classes", {"0": ["both"], "*": ["both"]}]})
    assert [found.plugin for found in stack.manager.implementations("observe")] == ["both", "both"]


def test_a_leaf_in_the_middle_is_refused(build: Callable[..., Stack]) -> None:
    with pytest.raises(ConfigError, match="should end in 'fcfs'"):
        build({"scheduler.stack": ["fcfs", "fair"]})


def test_sections_reach_their_plugin(build: Callable[..., Stack]) -> None:
    stack = build({"scheduler.stack": ["fair"], "scheduler.fair.weights": {"gold": 4}})
    assert stack.disciplines[0].plugin.config.weights == {"gold": 4}
    assert stack.disciplines[0].plugin.config.quantum == 8
    assert build({"cache.paged.block_size": 32}).caches[CacheAxis.ALLOCATOR][
        0
    ].plugin.config.block_size == 32


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"scheduler.fair.quantum": 0}, r"fair.quantum is 0 \(from flag.*equal to 1.*policies 3.2"),
        ({"scheduler.fair.quantm": 3}, r"scheduler.fair.quantm.*Did you mean 'quantum'"),
        ({"scheduler.fair.weights": {"a": "x"}}, r"weights.a is 'x' \(from flag scheduler.fair.w"),
        ({"scheduler.far.quantum": 3}, r"scheduler.far \(from flag.*no plugin 'far'.*mean 'fair'"),
        ({"scheduler.stacks": {}}, r"scheduler.stacks \(from flag.*Did you mean 'stack'"),
        ({"cache.slabs.x": 3}, r"cache.slabs .* no plugin 'slabs' is in the cache stack"),
        ({"cache.paged.block_size": 7}, r"cache.paged.block_size is 7 .*8, 16, 32 or 64"),
    ],
)
def test_mistakes_in_sections(
    build: Callable[..., Stack], flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build({"scheduler.stack": ["fair"], **flags})


def test_sections_are_validated_before_anything_is_built(build: Callable[..., Stack]) -> None:
    with pytest.raises(ConfigError, match="block_size"):
        build({"scheduler.stack": ["explodes"], "cache.paged.block_size": 7})


def test_a_typo_in_a_name(build: Callable[..., Stack]) -> None:
    with pytest.raises(PluginNotFound, match=r"the cache plugin 'pagd'.*Did you mean 'paged'"):
        build({"cache.stack": ["pagd"]})


def test_advisors_are_built_with_their_context(build: Callable[..., Stack]) -> None:
    stack = build({"scheduler.advisors": ["owner"]})
    assert stack.advisors[0].plugin.context.max_num_seqs == 4
    assert [entry.plugin for entry in stack.manager.implementations("victims")] == ["owner"]


def test_the_hooks_of_a_discipline_are_called_too(build: Callable[..., Stack]) -> None:
    stack = build({"scheduler.stack": ["both"]})
    assert [entry.call([]) for entry in stack.manager.implementations("observe")] == ["both"]


def test_two_owners_of_victims(build: Callable[..., Stack]) -> None:
    with pytest.raises(PluginConflict, match=r"'victims'.*'owner'.*'second'"):
        build({"scheduler.advisors": ["owner", "second"]})


def test_two_allocators(build: Callable[..., Stack]) -> None:
    with pytest.raises(PluginConflict, match=r"'allocator'.*'paged'.*jackfield.*'slabs'.*policies"):
        build({"cache.stack": ["paged", "slabs"]})


def test_no_allocator_and_no_kernel(build: Callable[..., Stack]) -> None:
    with pytest.raises(ConfigError, match=r"cache.stack names no plugin of the axis 'allocator'"):
        build({"cache.stack": []})
    with pytest.raises(ConfigError, match=r"kernel\.stack is empty"):
        build({"kernel.stack": []})


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ({"scheduler.stack": ["owner"]}, ConfigError, "orders nothing; name it in scheduler.adv"),
        ({"scheduler.advisors": ["fair"]}, ConfigError, "no hook; name it in scheduler.stack"),
        (
            {"scheduler.stack": ["both"], "scheduler.advisors": ["both"]},
            PluginConflict,
            "name it in the stack only",
        ),
        ({"scheduler.stack": ["misspelt"]}, PluginContractError, "Did you mean 'observe'"),
        ({"scheduler.stack": ["explodes"]}, PluginLoadError, "constructed: SystemExit: no"),
        ({"scheduler.stack": ["refuses"]}, ConfigError, "scheduler.refuses is refused by.*exclude"),
    ],
)
def test_what_stops_a_build(
    build: Callable[..., Stack], flags: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(flags)


def test_every_engine_has_its_own_manager(build: Callable[..., Stack]) -> None:
    first, second = build({"scheduler.advisors": ["owner"]}), build({})
    assert len(first.manager.implementations("victims")) == 1
    assert second.manager.implementations("victims") == []


def test_defaults_of_plugins_have_an_origin(build: Callable[..., Stack], plain_kernel: str) -> None:
    flags = {"scheduler.stack": ["fair"], "scheduler.fair.quantum": 2, "kernel.stack": ["plain"]}
    resolved = load_config(flags=flags)
    selection = select(resolved.config, discover_all(), resolved.origins)
    values, origins = effective(selection.all, resolved.origins)
    assert values["scheduler.fair.quantum"] == 2
    assert values["scheduler.fair.weights"] == {}
    assert str(origins["scheduler.fair.quantum"]) == "flag scheduler.fair.quantum"
    assert str(origins["scheduler.fair.weights"]) == "plugin default policies 3.2"


def test_an_unknown_architecture_names_the_nearest() -> None:
    with pytest.raises(ModelNotFound, match=r"'LamaForCausalLM'.*Did you mean 'LlamaForCausalLM'"):
        load_model_class("LamaForCausalLM")


def test_an_architecture_gives_its_class(install: Install) -> None:
    source = "class Tiny:\n    describe = forward = logits = lambda self: None\n"
    install("tiny", {"models": {"TinyForCausalLM": "tiny_model:Tiny"}}, tiny_model=source)
    assert load_model_class("TinyForCausalLM").cls.__name__ == "Tiny"
