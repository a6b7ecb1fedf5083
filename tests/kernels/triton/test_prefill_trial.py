"""Which way to give the device's library heads in groups is found out by trying."""

import torch
from torch import Tensor

from jackfield.plugins.kernels.triton.cudnn import find, reference, repeated

CPU = torch.device("cpu")


def _wrong(
    q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return reference(q_NSH, k_KLH, v_KLH, False, scale)


def _raises(
    q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    raise RuntimeError("no engine\nsecond line")


def test_a_trial_takes_the_first_way_that_is_right() -> None:
    notes: list[str] = []
    ways = {"wrong": _wrong, "refusing": _raises, "right": reference, "late": repeated}
    assert find(4, 2, 32, torch.float16, CPU, notes, ways) is reference
    assert len(notes) == 2
    assert "wrong heads" in notes[0] and "causal: the result is off by" in notes[0]
    assert notes[1].endswith("causal: no engine")


def test_a_trial_that_finds_nothing_says_who_serves() -> None:
    notes: list[str] = []
    assert find(4, 2, 32, torch.float16, CPU, notes, {"refusing": _raises}) is None
    assert "long prompts go to the Triton kernel" in notes[-1]
    assert find(4, 2, 32, torch.float32, CPU, notes) is None
    assert "float16 and bfloat16 only" in notes[-1]
