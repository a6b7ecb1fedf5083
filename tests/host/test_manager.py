"""Hooks are checked when they are registered, and compiled into plain callables in order."""

from typing import Any

import pytest

from jackfield.core.api import PluginConflict, PluginContractError, hookimpl
from jackfield.core.host.discover import Found
from jackfield.core.host.manager import Manager


def found(name: str, kind: str = "schedulers") -> Found:
    return Found(kind, name, f"module:{name}", "some-dist", "1.0", 1, "/somewhere")


def refused(plugin: Any, kind: str = "schedulers") -> str:
    with pytest.raises(PluginContractError) as caught:
        Manager().register(plugin, found("wrong", kind))
    message = str(caught.value)
    assert f"the {kind[:-1]} plugin 'wrong' (module:wrong, from some-dist 1.0)" in message
    return message


class Observer:
    @hookimpl
    def observe(self, events: Any) -> Any:
        return events


class Owner:
    @hookimpl
    def victims(self, shortage: Any) -> Any:
        return [shortage]


def test_a_hook_that_nobody_implements_is_empty() -> None:
    assert Manager().implementations("admit") == []


def test_implementations_keep_the_order_of_registration() -> None:
    manager = Manager()
    for name in ("c", "a", "b"):
        manager.register(Observer(), found(name))
    assert [entry.plugin for entry in manager.implementations("observe")] == ["c", "a", "b"]


def test_an_implementation_is_the_bound_method_itself() -> None:
    manager, plugin = Manager(), Observer()
    manager.register(plugin, found("observer"))
    (entry,) = manager.implementations("observe")
    assert entry.call == plugin.observe
    assert entry.call(("event",)) == ("event",)
    assert manager.hooks_of(found("observer")) == ["observe"]


def test_fewer_or_reordered_arguments_get_the_right_values() -> None:
    class Loads:
        @hookimpl
        def admit(self, load: Any) -> Any:
            return load

    class Turned:
        @hookimpl
        def admit(self, load: Any, requests: Any, extra: int = 5) -> Any:
            return load, requests, extra

    manager = Manager()
    manager.register(Loads(), found("loads"))
    manager.register(Turned(), found("turned"))
    answers = [entry.call("requests", "load") for entry in manager.implementations("admit")]
    assert answers == ["load", ("load", "requests", 5)]


def test_another_method_name_through_specname() -> None:
    class Renamed:
        @hookimpl(specname="observe")
        def watch(self, events: Any) -> Any:
            return events

    manager = Manager()
    manager.register(Renamed(), found("renamed"))
    assert [entry.plugin for entry in manager.implementations("observe")] == ["renamed"]


def test_an_unknown_argument_names_the_definition_and_the_nearest() -> None:
    class Wrong:
        @hookimpl
        def admit(self, requests: Any, lod: Any) -> None: ...

    message = refused(Wrong())
    assert "does not fit the hook admit(requests, load)" in message
    assert "wants the argument 'lod'. Did you mean 'load'?" in message


def test_a_keyword_only_argument_is_refused() -> None:
    class Wrong:
        @hookimpl
        def observe(self, *, events: Any) -> None: ...

    assert "declares events" in refused(Wrong())


def test_a_misspelt_hook_names_the_nearest() -> None:
    class Wrong:
        @hookimpl
        def obserfe(self, events: Any) -> None: ...

    assert "there is no hook 'obserfe'. Did you mean 'observe'?" in refused(Wrong())


def test_a_hook_of_another_kind_is_refused() -> None:
    class Wrong:
        @hookimpl
        def layout(self, max_model_len: int) -> None: ...

    assert "there is no hook 'layout'" in refused(Wrong())
    assert "there is no hook 'observe'" in refused(Observer(), "caches")


def test_an_optional_hook_of_a_later_host_is_ignored() -> None:
    class Ahead(Observer):
        @hookimpl(optionalhook=True)
        def predict(self, request: Any) -> None: ...

    manager = Manager()
    manager.register(Ahead(), found("ahead"))
    assert len(manager.implementations("observe")) == 1


@pytest.mark.parametrize("option", ["hookwrapper", "wrapper", "tryfirst", "trylast"])
def test_marks_that_jump_the_queue_are_refused(option: str) -> None:
    class Wrong:
        @hookimpl(**{option: True})
        def observe(self, events: Any) -> Any:
            yield

    assert f"is marked with {option}; a hook must be plain" in refused(Wrong())


def test_asynchronous_hooks_are_refused() -> None:
    class Wrong:
        @hookimpl
        async def observe(self, events: Any) -> None: ...

    assert "hooks are synchronous" in refused(Wrong())


def test_a_refused_plugin_leaves_nothing_behind() -> None:
    class Wrong(Observer):
        @hookimpl
        def shape(self, stp: Any) -> None: ...

    manager = Manager()
    with pytest.raises(PluginContractError):
        manager.register(Wrong(), found("wrong"))
    assert manager.implementations("observe") == []


def test_properties_are_not_run() -> None:
    class Careful(Observer):
        @property
        def trap(self) -> None:
            raise RuntimeError("looked at")

    Manager().register(Careful(), found("careful"))


def test_two_owners_of_an_exclusive_hook_are_both_named() -> None:
    manager = Manager()
    manager.register(Owner(), found("first"))
    manager.check()
    manager.register(Owner(), found("second"))
    with pytest.raises(PluginConflict, match=r"'victims'.*'first'.*'second'"):
        manager.check()
