"""The tables of block sizes and warps: one file per kernel, by shape class, dtype, architecture."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from jackfield.plugins.kernels.triton.support import architecture

FOLDER = Path(__file__).parent / "configs"
ANY = "any"
"""In the place of a dtype: all that have no entry of their own."""

Config = Mapping[str, int]
"""Keyword arguments of a launch: block sizes, num_warps, num_stages."""


class Entry(NamedTuple):
    """One row of a table."""

    shape: str
    dtype: str
    architecture: str
    config: Config


class Configs:
    """The table of one kernel. A GPU takes the newest architecture's that is not newer than it."""

    def __init__(self, kernel: str) -> None:
        self._path = FOLDER / f"{kernel}.json"
        self._table: Mapping[str, Mapping[str, Mapping[str, Config]]] = json.loads(
            self._path.read_text()
        )
        self._found: dict[tuple[str, torch.dtype, torch.device], Config] = {}

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> Config:
        """What to launch with. Cheap: every question is looked up once."""
        key = (shape, dtype, device)
        found = self._found.get(key)
        if found is None:
            name = str(dtype).removeprefix("torch.")
            found = self._found[key] = self.look_up(shape, name, architecture(device))
        return found

    def look_up(self, shape: str, dtype: str, wanted: str) -> Config:
        """Raises `LookupError` that names the file if there is none."""
        dtypes = self._table.get(shape, {})
        for name in (dtype, ANY):
            config = _newest(dtypes.get(name, {}), wanted)
            if config is not None:
                return config
        known = ", ".join(f"{e.shape}/{e.dtype}/{e.architecture}" for e in self.entries())
        raise LookupError(
            f"{self._path.name} has no configuration for {shape}/{dtype}/{wanted}; it has: {known}"
        )

    def entries(self) -> Iterator[Entry]:
        """All rows, for tests that compile what is shipped."""
        for shape, dtypes in self._table.items():
            for dtype, by_architecture in dtypes.items():
                for name, config in by_architecture.items():
                    yield Entry(shape, dtype, name, config)


def _newest(by_architecture: Mapping[str, Config], wanted: str) -> Config | None:
    fitting = [name for name in by_architecture if _number(name) <= _number(wanted)]
    return by_architecture[max(fitting, key=_number)] if fitting else None


def _number(name: str) -> int:
    return int(name.removeprefix("sm_"))
