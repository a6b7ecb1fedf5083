"""Writes a model folder of random weights, for engines that are to load the same ones.

    python scripts/random_checkpoint.py SHAPE FOLDER [standard deviation] [seed]

SHAPE: as of `jackfield bench --shape`, without quantized weights; the model's folder in FOLDER has
its name. Weights are bfloat16, of a standard deviation of 0.02 unless another is given; those of
norms are 1, biases 0. They are made on a GPU if there is one, a file of at most 2 GB at a time.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from rich.progress import track
from safetensors.torch import save_file
from torch import Tensor

from jackfield.core.api import Shard
from jackfield.core.api.kernel import OPERATIONS
from jackfield.core.bench.shapes import SHAPES, write_shape
from jackfield.core.checkpoint.outline_weights import OutlineWeights
from jackfield.core.doctor.tensors import build
from jackfield.core.host.stack import load_model_class

FILE_BYTES = 2 << 30
DTYPE = torch.bfloat16
Sizes = tuple[int, ...]


def asked_for(config: Mapping[str, object]) -> dict[str, Sizes]:
    """Names and shapes of all weights that the model takes, in its order."""
    (architecture,) = config["architectures"]  # type: ignore[misc]
    weights = OutlineWeights(DTYPE, Shard(), None)
    stopped = build(load_model_class(architecture).cls, config, weights, OPERATIONS)
    assert stopped is None, stopped
    found: dict[str, Sizes] = {}
    for name, parts in weights.taken:
        ends = tuple(end for _, end in parts)
        found[name] = tuple(map(max, ends, found.get(name, ends)))
    return found


def files(shapes: Mapping[str, Sizes]) -> Iterator[list[str]]:
    """Names of what goes into each."""
    names: list[str] = []
    size = 0
    for name, shape in shapes.items():
        own = torch.Size(shape).numel() * DTYPE.itemsize
        if names and size + own > FILE_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += own
    yield names


def made(name: str, shape: Sizes, deviation: float, device: torch.device) -> Tensor:
    if len(shape) == 1:
        return torch.full(shape, float(name.endswith("weight")), dtype=DTYPE)
    return (torch.randn(shape, device=device) * deviation).to(DTYPE).cpu()


def main(shape: str, folder: str, deviation: float = 0.02, seed: int = 0) -> None:
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if "quantization_config" in SHAPES.get(shape, ()):
        raise SystemExit(f"{shape} has quantized weights, and these are plain")
    target = write_shape(shape, Path(folder))
    shapes = asked_for(SHAPES[shape])
    index = {}
    for number, names in enumerate(track(list(files(shapes)), "Writing weights")):
        file = f"model-{number:05}.safetensors"
        index |= dict.fromkeys(names, file)
        tensors = {name: made(name, shapes[name], deviation, device) for name in names}
        save_file(tensors, target / file, metadata={"format": "pt"})
    total = sum(torch.Size(one).numel() for one in shapes.values()) * DTYPE.itemsize
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    (target / "model.safetensors.index.json").write_text(text)
    print(f"{len(shapes):,} tensors, {total / 1e9:.1f} GB, in {target}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*given[:2], *map(float, given[2:3]), *map(int, given[3:4]))
