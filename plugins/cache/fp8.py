"""Keys and values in one byte: 8-bit floats (Micikevicius et al., FP8 Formats for Deep Learning,
2022) or integers, with one scale per layer and head."""

from typing import Literal

from pydantic import Field

from jackfield.core.api import (
    CacheAxis,
    CachePlugin,
    KvEncoding,
    KvSpec,
    PolicyConfig,
    ScaleSource,
    hookimpl,
)


class Fp8Config(PolicyConfig):
    """format: how a number is stored. scales: where they come from; "one" = there are none.
    margin: of calibration, as in `KvEncoding`."""

    format: Literal["e4m3", "e5m2", "int8"] = "e4m3"
    scales: Literal["auto", "checkpoint", "calibrate", "one"] = "auto"
    margin: float = Field(1.5, ge=1, le=64)


class Fp8(CachePlugin):
    """A token takes half of the bytes that it takes in bfloat16, so twice as many fit."""

    Config = Fp8Config
    axis = CacheAxis.ENCODING

    @hookimpl
    def encode(self, spec: KvSpec) -> KvEncoding:
        """The same for every layer group."""
        import torch  # only processes that run the model ask

        config = self.config
        name, dtype, limit = {
            "e4m3": ("fp8_e4m3", torch.float8_e4m3fn, 448.0),
            "e5m2": ("fp8_e5m2", torch.float8_e5m2, 57344.0),
            "int8": ("int8", torch.int8, 127.0),
        }[config.format]
        return KvEncoding(
            name, dtype, limit, config.scales != "one", _source(config), config.margin
        )


def _source(config: Fp8Config) -> ScaleSource:
    if config.scales == "checkpoint":
        return ScaleSource.CHECKPOINT
    # Files hold scales for 8-bit floats, whose limit is larger: integers would be cut off.
    if config.scales == "auto" and config.format != "int8":
        return ScaleSource.EITHER
    return ScaleSource.CALIBRATION
