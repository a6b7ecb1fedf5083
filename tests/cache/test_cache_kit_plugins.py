"""The kit for caches finds broken plugins, each by its law, without a test file too."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.core.api import (
    CacheAxis,
    CachePlugin,
    EvictionSpace,
    Evictor,
    EvictorPlugin,
    Keep,
    KvEncoding,
    KvSpec,
    Move,
    TierSpec,
    hookimpl,
)
from jackfield.core.testing import retention_laws
from jackfield.core.testing.cache import check_cache
from jackfield.core.testing.cache_hostile import Finds
from jackfield.core.testing.cache_laws import cache_laws_of, live
from jackfield.core.testing.eviction_hostile import hostile_evictors
from jackfield.core.testing.faulty_stores import MemoryStore
from jackfield.core.testing.index_hostile import HOSTILE
from jackfield.core.testing.memory import CacheKit
from jackfield.core.testing.tier_laws import MakeStore

Patch = pytest.MonkeyPatch
TIERS = (TierSpec("host", 6), TierSpec("disk", 9))


def plugin(axis: CacheAxis, **hooks: Any) -> type[CachePlugin]:
    made: dict[str, Any] = {"axis": axis}
    for name, hook in hooks.items():
        made[name] = lambda self, *arguments, hook=hook: hook(*arguments)
    return type("Mine", (CachePlugin,), made)


def retains(**fields: Any) -> Callable[..., Any]:
    return lambda released: [Keep(**fields) for _ in released]


def encodes(**fields: Any) -> Callable[[KvSpec], Any]:
    good = KvEncoding("mine", torch.int8, 127.0)
    return lambda spec: good._replace(**fields)


def brings(tiers: Any = TIERS[:1], store: Any = None, move: Any = None) -> dict[str, Any]:
    opens: MakeStore = store or (lambda space: MemoryStore())
    return {
        "tiers": lambda block_bytes: tiers,
        "store": lambda name, space: opens(space) if name == "host" else None,
        "move": move or _fitting,
    }


def _fitting(view: Any, budget: int) -> list[Move]:
    return [Move(one.block) for one in view.candidates[: budget // view.block_bytes]]


class Spoils(MemoryStore):
    """Forgets a byte."""

    def put(self, slot: int, data_B: Any) -> None:
        super().put(slot, data_B)
        self.slots[slot][0] = 0


GOOD = [
    plugin(CacheAxis.IDENTITY, identity=Finds().identity),
    plugin(CacheAxis.NAMESPACE, salt=lambda view: view.context.tier.encode()),
    plugin(CacheAxis.RETENTION, retain=retains(priority=1, ttl=2.0)),
    plugin(CacheAxis.RETENTION, retain=retains(drop=True)),
    plugin(CacheAxis.TIER, **brings()),
    plugin(CacheAxis.ENCODING, encode=encodes()),
    plugin(CacheAxis.ENCODING, encode=lambda spec: None),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.axis)
def test_a_right_plugin_passes(good: type[CachePlugin], check_cache: Callable[..., None]) -> None:
    check_cache(good, examples=1)


SALT, KEEP, TIER = CacheAxis.NAMESPACE, CacheAxis.RETENTION, CacheAxis.TIER
WRONG = [
    (SALT, {"salt": lambda view: None}, r"M5: Mine.salt gave None"),
    (SALT, {"salt": lambda view: str(view.handle).encode()}, r"M5: Mine.salt tells .* apart"),
    (SALT, {"salt": lambda view, seen=[]: seen.append(0) or bytes(len(seen))}, "and then"),
    (KEEP, {"retain": lambda released: None}, r"Mine.retain gave None"),
    (KEEP, {"retain": lambda released: [Keep()]}, r"Mine.retain gave 1 for 2"),
    (KEEP, {"retain": retains(ttl=math.nan)}, r"the ttl nan"),
    (KEEP, {"retain": retains(priority=1.5)}, r"the priority 1.5"),
    (KEEP, {"retain": lambda released: [()] * len(released)}, r"which is no Keep"),
    (TIER, brings(tiers=[TierSpec("host", 0)]), r"M9: Mine.tiers gave 0 slots"),
    (TIER, brings(tiers=[TierSpec("device", 1)]), r"the name 'device'"),
    (TIER, brings(tiers=[TierSpec("host", 1), TierSpec("host", 2)]), r"names a tier twice"),
    (TIER, brings(store=lambda space: Spoils()), r"slot \d+ is not its own"),
    (TIER, brings() | {"store": lambda name, space: MemoryStore()}, r"does not bring"),
    (TIER, brings(tiers=[TierSpec("tape", 1)]), r"does not open its tier 'tape'"),
    (TIER, brings(move=lambda view, budget: None), r"E9: Mine.move gave None"),
    (TIER, brings(move=lambda view, budget: [Move(10**6)]), r"E9: .* which are no candidates"),
    (
        TIER, brings(move=lambda view, budget: [Move(one.block) for one in view.candidates]),
        r"E9: Mine.move moves \d+ bytes, \d+ may be",
    ),
    (
        TIER, brings(move=lambda view, budget: _fitting(view, budget // 2) * 2),
        r"E9: Mine.move names a block twice",
    ),
    (CacheAxis.ENCODING, {"encode": lambda spec: 8}, r"encode returned 8"),
    (CacheAxis.ENCODING, {"encode": encodes(limit=math.inf)}, r"the limit inf"),
    (CacheAxis.ENCODING, {"encode": encodes(limit=448.0)}, r"the limit 448.0"),
    (CacheAxis.ENCODING, {"encode": encodes(dtype="int8")}, r"the dtype 'int8'"),
    (CacheAxis.ENCODING, {"encode": encodes(name="")}, r"the name ''"),
    (CacheAxis.ENCODING, {"encode": encodes(dtype=torch.int64)}, r"larger than"),
    (CacheAxis.ENCODING, {"encode": encodes(source="files")}, r"the source 'files'"),
    (CacheAxis.ENCODING, {"encode": lambda spec, seen=[]: seen.append(0) or encodes(
        name=str(len(seen)))(spec)}, r"and then"),
    (CacheAxis.ALLOCATOR, {}, r"has the axis 'allocator' and no hook 'layout'"),
]  # fmt: skip


@pytest.mark.parametrize(("axis", "hooks", "message"), WRONG)
def test_a_wrong_plugin_is_found(axis: CacheAxis, hooks: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_cache(plugin(axis, **hooks), examples=1)


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - {"Writes", "RaisesOnInsert"}))
def test_a_lying_index_is_found(name: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, TypeError)):
        check_cache(plugin(CacheAxis.IDENTITY, identity=HOSTILE[name]), examples=1)


def test_an_index_that_finds_too_little_is_found() -> None:
    class Forgetful(type(Finds().identity(2))):  # type: ignore[misc]
        def match(self, *arguments: Any) -> Any:
            return super().match(*arguments)[:1]

    lazy = plugin(CacheAxis.IDENTITY, identity=Forgetful)
    law = next(law for law in cache_laws_of(lambda: lazy(None)) if law.name == "sharing")
    with pytest.raises(AssertionError, match=r"M5: \d+ tokens were found, \d+ are there"):
        law.check(lambda: lazy(None), 1)


def test_faults_in_a_life_are_told_with_their_reason() -> None:
    class Late:
        """Good, until an engine runs long enough."""

        def retain(self, released: Sequence[Any]) -> Any:
            return [Keep()] * len(released) if released[0].request.handle < 9 else None

    with pytest.raises(AssertionError, match=r"faults were counted: {'late': .*retain raised"):
        live(lambda: CacheKit([Finds(), Late()]), 0)


def test_an_evictor_is_checked_by_the_same_name() -> None:
    class Mine(EvictorPlugin):
        @hookimpl
        def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
            case = next(one for one in hostile_evictors() if one.name == "too few")
            return case.make(space, inner)

    with pytest.raises(AssertionError, match=r"^E1: "):
        check_cache(Mine, examples=2)


def test_t3_a_fold_that_depends_on_the_order_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(retention_laws, "fold", lambda first, second: second)
    with pytest.raises(AssertionError, match=r"^T3: "):
        check_cache(GOOD[2], examples=1)


def test_what_is_no_plugin_of_the_cache_is_told() -> None:
    with pytest.raises(AssertionError, match="object is no CachePlugin"):
        check_cache(lambda: object())  # type: ignore[arg-type,return-value]
    with pytest.raises(AssertionError, match="has the axis None"):
        check_cache(type("Bare", (CachePlugin,), {}))


def test_every_hook_has_laws() -> None:
    def names(made: type[CachePlugin]) -> set[str]:
        return {law.name.split("[")[0] for law in cache_laws_of(lambda: made(made.Config()))}

    life = {"lives", "determinism", "machine"}
    assert names(GOOD[0]) == {"declaration", "index", "sharing", *life}
    assert names(GOOD[1]) == {"declaration", "salt", "sharing", *life}
    assert names(GOOD[2]) == {"declaration", "keeps", "folds", *life}
    assert names(GOOD[4]) == {"declaration", "tiers", "stores", "moves", "sharing", *life}
    assert names(GOOD[5]) == {"declaration", "encoding"}


MINE = '''
from jackfield.core.api import CacheAxis, CachePlugin, PolicyConfig, hookimpl


class Config(PolicyConfig):
    answer: bytes | None = b""


class Mine(CachePlugin):
    """Tells nobody apart, or everybody."""

    Config = Config
    axis = CacheAxis.NAMESPACE

    @hookimpl
    def salt(self, request):
        return self.config.answer


class Bare(CachePlugin):
    axis = CacheAxis.TIER
'''


def command(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(MINE)
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    return subprocess.run(
        [*run, "--jackfield-examples", "1", *options],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_laws_are_items(tmp_path: Path) -> None:
    done = command(tmp_path, "--jackfield-cache=mine:Mine", "--collect-only", "-q")
    names = [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line]
    assert names[:2] == ["declaration", "salt"], done.stdout + done.stderr
    assert names[2:] == ["lives[M1-M12, E8, E9]", "determinism", "machine", "sharing"]
    done = command(tmp_path, "--jackfield-cache=paged", "-q", "-k", "layout or declaration")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_failure_tells_the_law_and_where_to_look(tmp_path: Path) -> None:
    config = ("--jackfield-config", '{"answer": null}')
    done = command(tmp_path, "--jackfield-cache=mine:Mine", *config, "-k", "salt or declaration")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "law:     M5: requests that are alike have the same salt" in done.stdout
    assert "broken:  M5: Mine.salt gave None" in done.stdout and "look at: " in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jackfield-cache=nowhere:Mine"], "importing it gave ModuleNotFoundError"),
        (["--jackfield-cache=mine:Config"], "is no CachePlugin"),
        (["--jackfield-cache=mine:Bare"], "has the axis 'tier' and no hook 'tiers'"),
        (["--jackfield-cache=prefx"], "Did you mean 'prefix'?"),
        (["--jackfield-cache=mine:Mine", '--jackfield-config={"anser": ""}'], "anser"),
        (
            ["--jackfield-cache=lru", "--jackfield-scheduler=fcfs", "--jackfield-config={}"],
            "name either a scheduler or a cache",
        ),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path: Path, options: list[str], message: str) -> None:
    done = command(tmp_path, *options)
    assert done.returncode == 4, done.stdout
    assert message in done.stderr and "Traceback" not in done.stderr
