"""What `sweep_decode.py` times: steps of decodes, and variants of the kernels."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

ENOUGH = 320 << 20
"""Bytes of keys and values that layers rotate through at least."""
Config = Mapping[str, int]


class Case(NamedTuple):
    """common: positions that all sequences have in common."""

    name: str
    heads: tuple[int, int]
    lens: list[int]
    common: int = 0

    @property
    def read(self) -> int:
        """Positions that must be read."""
        return sum(self.lens) - self.common * (len(self.lens) - 1)


def mixed() -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(100, 2049, (256,), generator=generator).tolist()


CASES = [
    Case("256 mixed 32/8", (32, 8), mixed()),
    Case("256 mixed 16/8", (16, 8), mixed()),
    Case("128x1024 16/8", (16, 8), [1024] * 128),
    Case("20x250 16/8", (16, 8), [250] * 20),
    Case("1x1024 16/8", (16, 8), [1024]),
    Case("2x4096 16/8", (16, 8), [4096] * 2),
    Case("16x32000 32/8", (32, 8), [32000] * 16),
    Case("64x4300 common 4096 32/8", (32, 8), [4300] * 64, 4096),
    Case("256x4400 common 4096 32/8", (32, 8), [4400] * 256, 4096),
]


FEW_CASES = [
    Case(f"{name} {heads[0]}/{heads[1]}", heads, lens)
    for heads in ((16, 8), (32, 8))
    for name, lens in (
        ("20x250", [250] * 20),
        ("20x300", [300] * 20),
        ("1x600", [600]),
        ("1x1024", [1024]),
        ("2x4096", [4096] * 2),
        ("8x500", [500] * 8),
    )
]
SHARES_CASES = [
    Case("256 mixed 16/8", (16, 8), mixed()),
    Case("256 mixed 32/8", (32, 8), mixed()),
    Case("134 of 1000 or so 16/8", (16, 8), [500 + 1000 * at // 134 for at in range(134)]),
    Case("50 of 1200 or so 16/8", (16, 8), [600 + 1200 * at // 50 for at in range(50)]),
    Case("64x300 16/8", (16, 8), [300] * 64),
    Case("64x8192 32/8", (32, 8), [8192] * 64),
]
CODES_CASES = [
    Case("256 mixed 32/8", (32, 8), mixed()),
    Case("64x8192 32/8", (32, 8), [8192] * 64),
]


def config(
    tile: int, stages: int, warps: int, ctas: int, last: int = 1, overhead: int = 24, **more: int
) -> Config:
    """more: CUT, REGISTERS, SHARES and LEAST."""
    return {
        "TILE": tile, "CTAS": ctas, "OVERHEAD": overhead, "MERGE": 2, "LAST": last,
        "num_warps": warps, "num_stages": stages, **more,
    }  # fmt: skip


def group_config(tile: int, stages: int, warps: int, ctas: int, rows: int) -> Config:
    return {**config(tile, stages, warps, ctas, 0), "ROWS": rows}


STANDARD = config(64, 3, 4, 3)
VARIANTS = [
    config(128, 2, 4, 2),
    config(64, 3, 4, 2),
    STANDARD,
    config(64, 3, 4, 3, last=0),
    config(64, 3, 4, 3, last=0, overhead=48),
    config(64, 3, 4, 3, overhead=96),
    config(64, 4, 4, 2),
    config(32, 3, 2, 6),
    config(32, 4, 2, 4),
]
WHOLE = 1 << 20
"""What it costs to cut rows if they are not to be cut."""
FEW_VARIANTS = [
    config(64, 3, 4, 3, overhead=96),
    config(64, 3, 4, 3, overhead=96, CUT=128),
    config(64, 3, 4, 3, overhead=300, CUT=128),
    config(64, 3, 4, 3, overhead=96, CUT=WHOLE),
    config(64, 3, 4, 3, overhead=96, last=0),
    config(64, 4, 4, 2, overhead=96, CUT=128),
    config(64, 2, 4, 3, overhead=96, CUT=128),
    config(128, 2, 4, 2, overhead=96, CUT=128),
    config(64, 3, 8, 2, overhead=96, CUT=128, REGISTERS=128),
    config(32, 3, 2, 6, overhead=96, CUT=128, REGISTERS=168),
    config(32, 4, 4, 4, overhead=96, CUT=128),
]
ONE_CASES = [
    Case(f"1x{length} {heads[0]}/{heads[1]}", heads, [length])
    for heads in ((16, 8), (32, 8), (32, 4))
    for length in (250, 500, 1500)
]
ONE_VARIANTS = [
    config(64, 3, 4, 3, overhead=96, CUT=128),
    config(64, 3, 4, 3, overhead=96, CUT=64),
    config(64, 3, 4, 3, overhead=96),
    config(64, 3, 4, 3, overhead=24),
    config(64, 3, 4, 3, overhead=96, CUT=WHOLE),
    config(64, 2, 4, 3, overhead=96, CUT=128),
    config(32, 3, 4, 3, overhead=96, CUT=64),
    config(32, 3, 2, 3, overhead=96, CUT=64),
    config(128, 2, 4, 3, overhead=96, CUT=64),
    config(128, 2, 8, 3, overhead=96, CUT=64),
]
CODES_VARIANTS = [
    config(64, 3, 4, 3, last=0, overhead=48),
    config(64, 4, 4, 3, last=0, overhead=48),
    config(64, 3, 4, 4, last=0, overhead=48, REGISTERS=128),
    config(64, 4, 4, 4, last=0, overhead=48, REGISTERS=128),
    config(128, 2, 4, 2, last=0, overhead=48),
    config(128, 3, 4, 2, last=0, overhead=48),
    config(128, 2, 8, 2, last=0, overhead=48, REGISTERS=128),
    config(64, 3, 2, 4, last=0, overhead=48),
    config(32, 4, 2, 6, last=0, overhead=48),
    config(32, 3, 2, 7, last=0, overhead=48, REGISTERS=136),
    config(32, 4, 1, 7, last=0, overhead=48),
]
SHARES_VARIANTS = [
    config(64, 3, 4, 3, last=0, overhead=48, REGISTERS=168),
    config(64, 3, 2, 4, last=0, overhead=48),
    config(128, 2, 4, 2, last=0, overhead=48),
    config(64, 3, 4, 3, last=0, SHARES=1, LEAST=4),
    config(64, 3, 4, 3, last=0, SHARES=1, LEAST=8),
    config(64, 4, 4, 2, last=0, SHARES=1, LEAST=4),
    config(128, 2, 4, 2, last=0, SHARES=1, LEAST=4),
    config(128, 2, 8, 3, last=0, SHARES=1, LEAST=4, REGISTERS=80),
    config(64, 3, 8, 3, last=0, SHARES=1, LEAST=4, REGISTERS=80),
    config(32, 4, 4, 4, last=0, SHARES=1, LEAST=8, REGISTERS=128),
    config(32, 3, 2, 6, last=0, SHARES=1, LEAST=8),
    config(64, 3, 2, 4, last=0, SHARES=1, LEAST=4),
]
GROUP_VARIANTS = [
    group_config(64, 3, 4, 1, 64),
    group_config(64, 3, 4, 2, 64),
    group_config(64, 3, 8, 1, 64),
    group_config(64, 3, 4, 2, 32),
    group_config(64, 3, 8, 1, 128),
    group_config(64, 3, 8, 2, 128),
    group_config(64, 2, 8, 1, 64),
    group_config(128, 2, 8, 1, 128),
]


class Sweep(NamedTuple):
    """enough: bytes of keys and values that layers rotate through at least."""

    cases: list[Case]
    variants: list[Config]
    encodings: list[str]
    enough: int = ENOUGH


SWEEPS = {
    "all": Sweep(CASES, VARIANTS, ["bf16", "e4m3"]),
    "one": Sweep(ONE_CASES, ONE_VARIANTS, ["bf16"], ENOUGH // 2),
    "few": Sweep(FEW_CASES, FEW_VARIANTS, ["bf16"], ENOUGH // 2),
    "shares": Sweep(SHARES_CASES, SHARES_VARIANTS, ["bf16", "e4m3"]),
    "codes": Sweep(CODES_CASES, CODES_VARIANTS, ["bf16", "e4m3", "e5m2", "int8"]),
}
