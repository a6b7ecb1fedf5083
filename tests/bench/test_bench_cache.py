"""Measurements of the cache: what is sent, what is counted, what is reported."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jackfield import LLM
from jackfield.core.api import ConfigError
from jackfield.core.bench.cache_lookup import LookupWork, measure_lookup
from jackfield.core.bench.cache_shared import SharedWork, measure_shared
from jackfield.core.bench.cache_swap import SwapWork, Talk, measure_swap
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.host.sources import Resolved, load_config
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.server.cache_report import lookup_lines, shared_lines, swap_lines
from jackfield.server.cli import main

SMALL = {"kernel.stack": ["torch"], "engine.threads": 1}
WORK = SharedWork(requests=5, shared_tokens=64, own_tokens=8, answer_tokens=3)
TALK = SwapWork(
    conversations=6, turns=3, first_tokens=40, message_tokens=10, answer_tokens=20, rounds=1
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def configure(folder: Path) -> Any:
    def made(more: Mapping[str, Any]) -> Resolved:
        return load_config(None, os.environ, {"model": folder, **SMALL, **more})

    return made


def test_a_common_beginning_is_computed_once(configure: Any) -> None:
    result = measure_shared(configure, WORK, SilentProgress())
    assert result.prompt_tokens == 5 * 72
    assert result.prefill == (5 * 72, 64 + 5 * 8)
    assert result.prefill_saved == pytest.approx(1 - (64 + 5 * 8) / (5 * 72), abs=1e-4)
    assert result.hits == 4
    assert result.hit_rate == pytest.approx(4 * 64 / (5 * 72), abs=1e-4)
    assert min(*result.first_ms, *result.seconds) > 0
    assert result.first_speedup == pytest.approx(
        result.first_ms[0] / result.first_ms[1], rel=0.01, abs=0.01
    )
    assert result.where["stack"]["cache"] == ["paged", "prefix"]
    assert json.loads(json.dumps(result.as_dict()))["hits"] == 4
    text = shared_lines(result)
    assert "5 requests of 64 common and 8 own tokens; 4 hits" in text
    assert "prefill tokens" in text and "360" in text and "104" in text


def test_nothing_in_common_is_no_hit(configure: Any) -> None:
    """Less than a block is shared: both engines compute everything."""
    work = WORK._replace(shared_tokens=8, own_tokens=8, requests=3)
    result = measure_shared(configure, work, SilentProgress())
    assert (result.hits, result.prefill, result.prefill_saved) == (0, (48, 48), 0.0)


def test_numbers_of_the_conversations(configure: Any) -> None:
    """40 + 2 * 10 + 3 * 20 tokens are 8 blocks, 40 + 2 * 10 + 3 * 30 are 10."""
    assert (TALK.all_blocks, TALK.num_blocks, TALK.most_blocks) == (48, 24, 10)
    assert TALK._replace(conversations=1).num_blocks == 10 + 2
    with LLM(config=configure({})) as llm:
        talk = Talk(llm, TALK, Random(0))
    assert all(10 <= length <= 30 for length in talk.lengths)
    assert talk.next() and talk.needed == len(talk.tokens) == 40
    talk.tokens += [1] * 24
    assert talk.next() and talk.needed == 40 + (74 - 48)
    talk.tokens += [1] * 11
    assert talk.next() and talk.needed == 40 + (74 - 48) + (95 - 80)
    assert not talk.next()


def test_with_room_for_everything_nothing_is_computed_again(configure: Any) -> None:
    result = measure_swap(configure, TALK._replace(share=1.5), SilentProgress())
    assert result.recomputed == (0, 0)
    assert (result.preemptions, result.recomputed_saved) == ((0, 0), 0.0)


def test_conversations_beyond_the_pool(configure: Any) -> None:
    result = measure_swap(configure, TALK, SilentProgress())
    assert (result.num_blocks, result.working_set_blocks) == (24, 48)
    assert result.needed > 6 * 40
    assert result.recomputed[0] > 0 and result.stored > 0
    assert result.loaded > 0
    assert min(result.rate) > 0
    assert result.where["stack"]["cache"] == ["paged", "prefix", "swap"]
    text = swap_lines(result)
    assert "6 conversations of 3 turns, 48 blocks in a pool of 24" in text
    assert json.loads(json.dumps(result.as_dict()))["num_blocks"] == 24


def test_a_prompt_is_looked_up_in_a_full_cache(configure: Any) -> None:
    result = measure_lookup(configure, LookupWork(20, 190, 3), SilentProgress())
    assert (result.prompt_tokens, result.cached_blocks) == (320, 200)
    assert [one.name for one in result.indexes] == ["prefix", "radix"]
    for one in result.indexes:
        assert one.found == 20 and one.fault is None
        assert one.find_us > 0 and one.open_us > 0
        assert 10 < one.bytes_per_token < 500
    text = lookup_lines(result)
    assert "320 tokens among 200 blocks" in text and "radix" in text
    assert json.loads(json.dumps(result.as_dict()))["indexes"][0]["name"] == "prefix"


@pytest.mark.parametrize(
    ("measure", "work", "name"),
    [
        (measure_shared, WORK._replace(requests=0), "requests of shared is 0"),
        (measure_swap, TALK._replace(turns=0), "turns of swap is 0"),
        (measure_lookup, LookupWork(lookups=0), "lookups of lookup is 0"),
    ],
)
def test_no_workload_is_refused(configure: Any, measure: Any, work: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        measure(configure, work, SilentProgress())


def test_the_command_names_what_it_measured(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", str(folder), "--set", "kernel.stack=['torch']", "--set", "engine.threads=1"]
    sizes = ["--requests", "2", "--shared-tokens", "32", "--only", "shared"]
    assert main(["bench", "cache", *flags, *sizes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measurement"] == "shared" and found["prefill"] == [96, 64]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--only", "shred"], "unknown measurement 'shred'. Did you mean 'shared'?"),
        (["--set", "cache.stack=['paged']"], "cache.stack is what this measurement sets itself"),
    ],
)
def test_the_command_refuses(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "cache", *given]) != 0
    assert message in capsys.readouterr().err
