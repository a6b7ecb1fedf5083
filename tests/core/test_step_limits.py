"""How many tokens a step holds if nobody says so."""

from typing import Any

import pytest
import torch

from jackfield.core.api import ConfigError
from jackfield.core.executors import limits
from jackfield.core.executors.limits import limits_for
from jackfield.core.host.config import Config
from jackfield.core.kv.sizing import GIB, Memory

CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Spec:
    max_positions = 4096


def tokens(device: torch.device, *, streamed: bool, **engine: Any) -> int:
    config = Config.model_validate({"engine": engine})
    spec: Any = Spec()
    return limits_for(config, spec, device, streamed=streamed).max_tokens


@pytest.mark.parametrize(("gibibytes", "whole"), [(24, 8192), (79, 16384), (139, 16384)])
def test_large_steps_where_nobody_waits_for_single_tokens(
    monkeypatch: pytest.MonkeyPatch, gibibytes: int, whole: int
) -> None:
    monkeypatch.setattr(limits, "memory_of", lambda _: Memory(gibibytes * GIB, GIB))
    assert tokens(GPU, streamed=False) == whole + 256
    assert tokens(GPU, streamed=True, max_num_seqs=32) == 8192 + 32
    assert tokens(GPU, streamed=False, max_num_batched_tokens=300) == 300


@pytest.mark.parametrize("streamed", [True, False])
def test_cpus_take_small_steps(streamed: bool) -> None:
    assert tokens(CPU, streamed=streamed) == 2048
    assert tokens(CPU, streamed=streamed, max_num_seqs=3000) == 3000


def test_a_step_holds_a_token_of_each() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs 256"):
        tokens(CPU, streamed=True, max_num_batched_tokens=100)
