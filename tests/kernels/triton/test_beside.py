"""What is launched beside others, and what begins early."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from jackfield.plugins.kernels.triton import attention, beside, decode
from jackfield.plugins.kernels.triton.attention import TritonAttention
from jackfield.plugins.kernels.triton.beside import Beside
from jackfield.plugins.kernels.triton.support import TritonConfig

GPU = torch.device("cuda")


class Stream:
    """Notes whom it waits for."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    def wait_stream(self, other: "Stream") -> None:
        self._log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    noted: list[str] = []
    main = Stream("main", noted)
    current = [main]

    class Within:
        def __init__(self, stream: Stream) -> None:
            self._stream = stream

        def __enter__(self) -> None:
            current.append(self._stream)

        def __exit__(self, *_: object) -> None:
            current.pop()

    fake = SimpleNamespace(
        Stream=lambda device: Stream("side", noted),
        current_stream=lambda device: current[-1],
        stream=Within,
    )
    monkeypatch.setattr(beside.torch, "cuda", fake)
    noted_by = lambda what, **_: noted.append(f"{what} on {current[-1].name}")  # noqa: E731
    monkeypatch.setattr(attention, "decode_attention", lambda *_, **how: noted_by(f"decodes {how}"))
    monkeypatch.setattr(attention, "plan_decodes", lambda q, layer, step: q)
    monkeypatch.setattr(decode, "_launch", lambda *_, **how: noted_by(f"launch {how}"))
    monkeypatch.setattr(decode, "_merge", lambda *_, **how: noted_by(f"merge {how}"))
    monkeypatch.setattr(decode, "_last_merges", lambda *_: False)
    return noted


def forward(tokens: int, log: list[str], decodes: int = 3) -> None:
    serves = TritonAttention(TritonConfig())
    prefill: Any = SimpleNamespace(is_large=tokens >= 2048)
    serves._prefill = SimpleNamespace(forward=lambda *_: log.append("prompts"))  # type: ignore[assignment]
    step: Any = SimpleNamespace(batch=SimpleNamespace(num_decodes=decodes), prefill=prefill)
    q: Any = SimpleNamespace(device=GPU)
    layer: Any = None
    serves.forward(q, layer, step, q)


def test_decodes_run_beside_large_prompts(log: list[str]) -> None:
    forward(4096, log)
    assert log == [
        "side waits for main",
        "decodes {'alone': False} on side",
        "prompts",
        "main waits for side",
    ]


def test_small_prompts_are_computed_after_decodes(log: list[str]) -> None:
    forward(100, log)
    assert log == ["decodes {} on main", "prompts"]


def test_nobody_waits_where_there_are_no_decodes(log: list[str]) -> None:
    forward(4096, log, decodes=0)
    assert log == ["prompts"]


@pytest.mark.parametrize("alone", [True, False])
def test_common_beginnings_run_beside_the_rest(
    log: list[str], monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """But not twice beside others: then they are in one stream of their own."""
    step: Any = SimpleNamespace(plan=lambda geometry: plan, batch=SimpleNamespace(num_decodes=4))
    plan: Any = SimpleNamespace(grouped=True)
    keys = torch.empty(1, 1, 16, 64, device="cpu")
    layer: Any = SimpleNamespace(tensors={"k": keys}, window=None)
    q = torch.empty(4, 2, 64, device="cpu")
    geometry = SimpleNamespace(device=GPU)
    monkeypatch.setattr(decode, "geometry_of", lambda *_: geometry)
    decode.decode_attention(q, layer, step, q, Beside(), alone=alone)
    own, group = ({"grouped": one, "alone": False} for one in (False, True))
    if alone:
        assert log == [
            "side waits for main",
            f"launch {group} on side",
            f"launch {own} on main",
            "main waits for side",
            "merge {'alone': False} on main",
        ]
    else:
        assert log == [
            f"launch {group} on main", f"launch {own} on main", "merge {'alone': False} on main",
        ]  # fmt: skip


def test_without_a_gpu_everything_is_done_in_turn() -> None:
    second, done = Beside(), False
    with second(torch.device("cpu")):
        done = True
    second.join(torch.device("cpu"))
    assert done
