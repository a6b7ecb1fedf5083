"""Rounding to bfloat16 and the file format, against torch and safetensors."""

from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file

from jackfield.core.checkpoint.safetensors_writer import (
    PendingTensor,
    to_bfloat16,
    write_bfloat16,
)


@given(bits=st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_every_float_rounds_as_torch_rounds(bits: list[int]) -> None:
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16)
    ours = torch.from_numpy(to_bfloat16(values).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(torch.isnan(ours), torch.isnan(expected))
    numbers = ~torch.isnan(expected)
    assert torch.equal(ours[numbers].view(torch.int16), expected[numbers].view(torch.int16))


def test_file_reads_back(tmp_path: Path) -> None:
    values = {
        "b": np.array([[1.0, -2.5, 3.14159]], dtype=np.float32),
        "a": np.array([7.0], dtype=np.float32),
        "empty": np.zeros((0, 4), dtype=np.float32),
    }
    written: list[int] = []
    write_bfloat16(
        tmp_path / "x.safetensors",
        [PendingTensor(name, array.shape, array.copy) for name, array in values.items()],
        written.append,
    )
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == values.keys()
    for name, array in values.items():
        assert torch.equal(found[name], torch.from_numpy(array).to(torch.bfloat16))
    assert sorted(written) == [0, 2, 6]


def test_one_tensor_is_read_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []

    def reader(name: str) -> PendingTensor:
        def read() -> NDArray[np.float32]:
            order.append(f"read {name}")
            return np.array([1.0], dtype=np.float32)

        return PendingTensor(name, (1,), read)

    write_bfloat16(
        tmp_path / "x.safetensors", [reader("a"), reader("b")], lambda n: order.append("written")
    )
    assert order == ["read a", "written", "read b", "written"]
