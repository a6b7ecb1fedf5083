"""The tensors that stand for one quantized weight, taken by the ends of their names."""

from collections.abc import Sequence

from torch import Tensor

from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.quant_scheme import Scheme
from jackfield.core.checkpoint.safetensors_weights import FLOATS, SafetensorsWeights

INTEGERS = ("I32", "I64")


class QuantTensors:
    """Of a module: its path, such as "model.layers.0.mlp.up_proj". shape: of the weight."""

    def __init__(
        self, weights: SafetensorsWeights, module: str, shape: tuple[int, int], scheme: Scheme
    ) -> None:
        self._weights, self._module = weights, module
        self.shape, self.scheme = shape, scheme

    def name(self, suffix: str) -> str:
        return f"{self._module}.{suffix}"

    def has(self, suffix: str) -> bool:
        return self.name(suffix) in self._weights.stored

    def where(self, suffix: str) -> str:
        """File and tensor, as messages begin."""
        return f"{self._weights.stored[self.name(suffix)].file}, tensor {self.name(suffix)!r}"

    def need(
        self, suffix: str, shape: tuple[int, ...], types: Sequence[str] = FLOATS
    ) -> Tensor:
        """As stored, on the device. Raises CheckpointError if it is missing or is another."""
        return self.need_one_of(suffix, [shape], types)

    def need_one_of(
        self, suffix: str, shapes: Sequence[tuple[int, ...]], types: Sequence[str] = FLOATS
    ) -> Tensor:
        """The same with several possible shapes."""
        stored = self._weights.stored.get(self.name(suffix))
        if stored is None:
            raise CheckpointError(self._missing(suffix, shapes[0]))
        if stored.shape not in shapes:
            raise CheckpointError(
                f"{self.where(suffix)}: shape is {list(stored.shape)}, but {self.scheme.text} "
                f"makes it {list(shapes[0])} for a weight of {list(self.shape)}; "
                f"quantization_config in config.json does not fit these weights."
            )
        if stored.dtype not in types:
            raise CheckpointError(
                f"{self.where(suffix)}: element type is {stored.dtype}; {self.scheme.text} has "
                f"{' or '.join(types)} there."
            )
        return self._weights.take_as_stored(self.name(suffix))

    def _missing(self, suffix: str, shape: tuple[int, ...]) -> str:
        names = self._weights.stored
        own = [name for name in names if name.startswith(f"{self._module}.")]
        beside = max(own, key=lambda name: names[name].bytes)
        return (
            f"{names[beside].file} has {beside!r} of shape {list(names[beside].shape)} without "
            f"the tensor {self.name(suffix)!r}, which {self.scheme.text} needs in shape "
            f"{list(shape)}."
        )
