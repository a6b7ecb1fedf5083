"""Discovery reads metadata of every distribution and imports nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jackfield.core.api import KINDS, PluginLoadError
from jackfield.core.host.discover import discover, discover_all, split_name

Install = Callable[..., Path]
BROKEN = "raise RuntimeError('imported')"


def test_the_defaults_arrive_through_entry_points() -> None:
    assert set(discover_all()) == set(KINDS)
    assert {"fcfs", "priority"} <= set(discover("schedulers").names())
    assert "paged" in discover("caches").names()


def test_an_entry_is_described_without_importing_it(install: Install) -> None:
    groups = {"schedulers": {"fair": "fair_bad:Fair"}}
    folder = install("fair-share", groups, "2.1", fair_bad=BROKEN)
    (found,) = discover("schedulers").named("fair")
    assert found[:5] == ("schedulers", "fair", "fair_bad:Fair", "fair-share", "2.1")
    assert (found.api_version, Path(found.path).parent) == (1, folder)
    assert str(found) == "the scheduler plugin 'fair' (fair_bad:Fair, from fair-share 2.1)"


def test_other_versions_are_kept_apart(install: Install) -> None:
    install("future", {"schedulers": {"ahead": "future:Ahead"}}, api=2)
    catalogue = discover("schedulers")
    assert "ahead" not in catalogue.names()
    assert [found.api_version for found in catalogue.foreign_named("ahead")] == [2]


def test_two_distributions_with_one_name_are_both_kept(install: Install) -> None:
    install("one", {"schedulers": {"fair": "one:Fair"}})
    install("Two_Words", {"schedulers": {"fair": "two:Fair"}})
    catalogue = discover("schedulers")
    assert {found.distribution for found in catalogue.named("fair")} == {"one", "Two_Words"}
    assert [found.value for found in catalogue.named("two-words:fair")] == ["two:Fair"]


def test_one_distribution_seen_twice_counts_once(install: Install) -> None:
    for _ in range(2):
        install("one", {"schedulers": {"fair": "one:Fair"}})
    assert len(discover("schedulers").named("fair")) == 1


def test_a_stale_shadow_of_another_version_counts(install: Install) -> None:
    first = install("one", {"schedulers": {"fair": "one:Fair"}}, "1.0")
    second = install("one", {"schedulers": {"fair": "one:Fair"}}, "1.1")
    paths = {Path(found.path).parent for found in discover("schedulers").named("fair")}
    assert paths == {first, second}


def test_kinds_of_later_hosts_are_ignored(install: Install) -> None:
    install("later", {"observers": {"fair": "later:Fair"}})
    assert not any(catalogue.named("fair") for catalogue in discover_all().values())


def test_unreadable_entry_points_name_the_folder(install: Install) -> None:
    folder = install("torn", {"schedulers": {"fair": "torn:Fair"}})
    next(folder.glob("*.dist-info/entry_points.txt")).write_text("[jackfield.v1.caches]\nno value")
    with pytest.raises(PluginLoadError, match=r"torn-1\.0\.dist-info has an entry_points\.txt"):
        discover_all()


def test_names() -> None:
    assert split_name("fair") == (None, "fair")
    assert split_name("some-dist:fair") == ("some-dist", "fair")
