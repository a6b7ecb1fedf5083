"""Taking tensors from safetensors files, and everything that can be wrong with them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.model import Shard, Split
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.safetensors_reader import SafetensorsReader
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.checkpoint.tensor_files import find_tensor_files

A, B, C = torch.arange(12.0).view(4, 3), torch.ones(5), torch.full((2, 2), 7.0)


def open_folder(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    shard: Shard | None = None,
    progress: SilentProgress | None = None,
) -> SafetensorsWeights:
    files = find_tensor_files(folder)
    device = torch.device("cpu")
    return SafetensorsWeights(files, dtype, device, shard or Shard(), progress or SilentProgress())


def save(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> Path:
    save_file({key: value.clone() for key, value in tensors.items()}, folder / name)
    return folder / name


def save_index(folder: Path, places: Mapping[str, str]) -> None:
    text = json.dumps({"metadata": {}, "weight_map": places})
    (folder / "model.safetensors.index.json").write_text(text)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save(tmp_path, "one.safetensors", {"a": A, "b": B})
    save(tmp_path, "two.safetensors", {"c": C})
    save_index(tmp_path, {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"})
    return tmp_path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_cast_and_owned(tmp_path: Path, dtype: torch.dtype) -> None:
    stored = A.to(torch.bfloat16)
    save(tmp_path, "model.safetensors", {"a": stored})
    with open_folder(tmp_path, dtype) as weights:
        taken = weights.take("a", (4, 3))
        weights.finish()
        assert taken.dtype == dtype and torch.equal(taken, stored.to(dtype))
        assert weights.bytes_taken == 12 * dtype.itemsize
        taken.zero_()
        assert torch.equal(weights.take("a", (4, 3)), stored.to(dtype))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_takes_its_part(tmp_path: Path, rank: int) -> None:
    wide = torch.arange(24.0).view(4, 6)
    save(tmp_path, "model.safetensors", {"w": wide, "b": torch.arange(4.0)})
    with open_folder(tmp_path, shard=Shard(rank, 2)) as weights:
        assert torch.equal(weights.take("w", (4, 6), Split.ROWS), wide.chunk(2, 0)[rank])
        columns = weights.take("w", (4, 6), Split.COLUMNS)
        assert torch.equal(columns, wide.chunk(2, 1)[rank]) and columns.is_contiguous()
        assert torch.equal(weights.take("w", (4, 6)), wide)
        assert torch.equal(weights.take("b", (4,), Split.ROWS), torch.arange(4.0).chunk(2)[rank])


@pytest.mark.parametrize(("split", "size"), [(Split.ROWS, "4"), (Split.COLUMNS, "5")])
def test_what_does_not_divide(tmp_path: Path, split: Split, size: str) -> None:
    save(tmp_path, "model.safetensors", {"w": torch.ones(4, 5)})
    wanted = rf"'w'.*3 ranks.*divides {size}"
    weights = open_folder(tmp_path, shard=Shard(0, 3))
    with weights, pytest.raises(CheckpointError, match=wanted):
        weights.take("w", (4, 5), split)


def test_shards_are_read_through_the_index(sharded: Path) -> None:
    with open_folder(sharded) as weights:
        for name, value in (("c", C), ("a", A), ("b", B)):
            assert weights.has(name)
            assert torch.equal(weights.take(name, tuple(value.shape)), value)
        assert not weights.has("d")
        weights.finish()


class Counting(SilentProgress):
    def __init__(self) -> None:
        self.events: list[object] = []

    def start(self, label: str, total: int | None) -> None:
        self.events.append(("start", total))

    def advance(self, n: int) -> None:
        self.events.append(n)

    def finish(self) -> None:
        self.events.append("finish")


def test_progress_reaches_its_total_and_ends(sharded: Path) -> None:
    progress = Counting()
    with open_folder(sharded, progress=progress) as weights:
        weights.take("a", (4, 3))
        weights.take("b", (5,))
        weights.take("c", (2, 2))
    assert progress.events == [("start", 84), 48, 20, 16, "finish"]


def test_progress_ends_when_loading_fails(sharded: Path) -> None:
    progress = Counting()
    with pytest.raises(CheckpointError), open_folder(sharded, progress=progress) as weights:
        weights.take("zzz", (1,))
    assert progress.events == [("start", 84), "finish"]


def test_consolidated_beside_shards_is_not_read(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(sharded, "consolidated.safetensors", {"a": A + 1, "b": B + 1, "c": C + 1})
    reads: list[str] = []
    read = SafetensorsReader.read

    def counted(self: SafetensorsReader, name: str, *rest: object) -> Tensor:
        reads.append(name)
        return read(self, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(SafetensorsReader, "read", counted)
    with open_folder(sharded) as weights:
        values = [weights.take("a", (4, 3)), weights.take("b", (5,)), weights.take("c", (2, 2))]
        weights.finish()
    assert reads == ["a", "b", "c"]
    assert all(torch.equal(x, y) for x, y in zip(values, (A, B, C), strict=True))


def test_consolidated_beside_unindexed_files_is_not_read(tmp_path: Path) -> None:
    save(tmp_path, "consolidated.safetensors", {"a": A})
    save(tmp_path, "weights.safetensors", {"a": A})
    assert [file.name for file in find_tensor_files(tmp_path).files] == ["weights.safetensors"]


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_folder(folder)
    return str(caught.value)


def test_a_removed_shard(sharded: Path) -> None:
    (sharded / "two.safetensors").unlink()
    message = refusal(sharded)
    assert "two.safetensors" in message and "model.safetensors.index.json" in message


def test_a_renamed_shard(sharded: Path) -> None:
    (sharded / "two.safetensors").rename(sharded / "three.safetensors")
    assert "lacks the shard two.safetensors" in refusal(sharded)


def test_a_missing_number_without_an_index(tmp_path: Path) -> None:
    save(tmp_path, "model-00001-of-00003.safetensors", {"a": A})
    save(tmp_path, "model-00003-of-00003.safetensors", {"c": C})
    assert "model-00002-of-00003.safetensors" in refusal(tmp_path)
    save(tmp_path, "model-00002-of-00003.safetensors", {"b": B})
    with open_folder(tmp_path) as weights:
        assert torch.equal(weights.take("b", (5,)), B)


def test_an_index_that_names_a_tensor_that_is_nowhere(sharded: Path) -> None:
    save_index(sharded, {"a": "one.safetensors", "ghost": "two.safetensors"})
    message = refusal(sharded)
    assert "'ghost'" in message and "two.safetensors" in message


@pytest.mark.parametrize("name", ["../other.safetensors", "/x.safetensors", 3])
def test_an_index_reaches_no_other_folder(sharded: Path, name: str) -> None:
    save_index(sharded, {"a": name})
    assert repr(name) in refusal(sharded)


def test_an_index_without_a_map(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert "weight_map" in refusal(tmp_path)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    save(tmp_path, "x.safetensors", {"a": A})
    save(tmp_path, "y.safetensors", {"a": A})
    message = refusal(tmp_path)
    assert "'a'" in message and "x.safetensors" in message and "y.safetensors" in message


def test_an_index_decides_between_two_files(tmp_path: Path) -> None:
    save(tmp_path, "x.safetensors", {"a": A, "b": B})
    save(tmp_path, "y.safetensors", {"a": A + 1})
    save_index(tmp_path, {"a": "y.safetensors", "b": "x.safetensors"})
    with open_folder(tmp_path) as weights:
        assert torch.equal(weights.take("a", (4, 3)), A + 1)


@pytest.mark.parametrize("lost", [1, 30])
def test_a_truncated_file(tmp_path: Path, lost: int) -> None:
    file = save(tmp_path, "model.safetensors", {"a": A, "b": B})
    whole = file.read_bytes()
    file.write_bytes(whole[:-lost])
    message = refusal(tmp_path)
    for part in (str(file), "cut short", str(len(whole)), str(len(whole) - lost), "'b'"):
        assert part in message


@pytest.mark.parametrize("kept", [0, 5, 20])
def test_a_file_cut_in_its_header(tmp_path: Path, kept: int) -> None:
    file = save(tmp_path, "model.safetensors", {"a": A})
    file.write_bytes(file.read_bytes()[:kept])
    assert f"{file} is cut short" in refusal(tmp_path)


@pytest.mark.parametrize("header", [b"[1]     ", b"{{{{    ", b'{"a": 3}', b'{"a":{}}'])
def test_a_damaged_header(tmp_path: Path, header: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    assert f"{file} has a header that cannot be read" in refusal(tmp_path)


def test_a_pointer_instead_of_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "git lfs pull" in refusal(tmp_path)


def test_a_missing_tensor_with_the_nearest_name(tmp_path: Path) -> None:
    file = save(tmp_path, "model.safetensors", {"model.layers.0.mlp.up.weight": A})
    with open_folder(tmp_path) as weights, pytest.raises(CheckpointError) as caught:
        weights.take("model.layers.0.mlp.up_proj.weight", (4, 3))
    message = str(caught.value)
    assert "'model.layers.0.mlp.up_proj.weight'" in message
    assert "'model.layers.0.mlp.up.weight'" in message and str(file) in message


def test_a_missing_tensor_of_several_files(sharded: Path) -> None:
    with open_folder(sharded) as weights, pytest.raises(CheckpointError, match="of the 2 files"):
        weights.take("zzz", (1,))


def test_a_wrong_shape(tmp_path: Path) -> None:
    file = save(tmp_path, "model.safetensors", {"a": A})
    with open_folder(tmp_path) as weights, pytest.raises(CheckpointError) as caught:
        weights.take("a", (3, 4))
    for part in (str(file), "'a'", "[4, 3]", "[3, 4]"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.int32, "I32"), (torch.float8_e4m3fn, "F8_E4M3")]
)
def test_a_wrong_element_type(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    file = save(tmp_path, "model.safetensors", {"a": A.to(dtype)})
    with open_folder(tmp_path) as weights, pytest.raises(CheckpointError) as caught:
        weights.take("a", (4, 3))
    assert str(file) in str(caught.value) and name in str(caught.value)


def test_surplus_tensors_are_listed(tmp_path: Path) -> None:
    save(tmp_path, "model.safetensors", {"a": A, **{f"extra{i}": B for i in range(7)}})
    with open_folder(tmp_path) as weights:
        weights.take("a", (4, 3))
        weights.ignore(r"extra[06]")
        weights.ignore(r"extr")  # a part of a name is not the name
        with pytest.raises(CheckpointError) as caught:
            weights.finish()
        assert str(caught.value).startswith("5 tensors")
        assert "extra1" in str(caught.value) and "extra0" not in str(caught.value)
        weights.ignore(r"extra[12345]")
        weights.finish()


def test_surplus_tensors_beyond_five_are_counted(tmp_path: Path) -> None:
    save(tmp_path, "model.safetensors", {f"extra{i}": B for i in range(7)})
    with open_folder(tmp_path) as weights, pytest.raises(CheckpointError) as caught:
        weights.finish()
    assert "extra4" in str(caught.value) and "extra5" not in str(caught.value)
    assert "and 2 more" in str(caught.value)


def test_only_pickles(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    message = refusal(tmp_path)
    assert "pytorch_model.bin" in message and "only safetensors" in message
    assert "save_pretrained" in message


def test_no_weights_at_all(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(tmp_path)


def test_the_file_is_opened_anew_when_much_of_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackfield.core.checkpoint.safetensors_reader.MAPPED_BYTES", 60)
    save(tmp_path, "model.safetensors", {"a": A, "b": B, "c": C})
    closed: list[int] = []
    close = SafetensorsReader.close
    monkeypatch.setattr(SafetensorsReader, "close", lambda self: (closed.append(1), close(self)))
    with open_folder(tmp_path) as weights:
        weights.take("a", (4, 3))
        assert len(closed) == 1
        weights.take("b", (5,))
        assert len(closed) == 2
        assert torch.equal(weights.take("c", (2, 2)), C)
