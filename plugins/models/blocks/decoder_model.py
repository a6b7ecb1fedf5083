"""A model of the Llama family, from what its architecture reads in a config.json."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from jackfield.core.api.experts import ExpertHistogram
from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend, LogitsPart, ModelInputs, ModelSpec, Shard, Weights
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder import Decoder
from jackfield.plugins.models.blocks.shape import DecoderShape


class DecoderModel(ABC):
    """Everything but `read`, which is what architectures of the family differ in."""

    @staticmethod
    @abstractmethod
    def read(reader: ConfigReader) -> DecoderShape:
        """Sizes, biases, norms and windows. Raises `ModelError` naming the key it cannot use."""

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> ModelSpec:
        return cls.read(ConfigReader(config)).spec()

    def __init__(
        self, config: Mapping[str, Any], ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        self._decoder = Decoder(self.read(ConfigReader(config)), ops, shard, weights)

    def forward(self, inputs: ModelInputs, attend: Attend) -> Tensor:
        return self._decoder.forward(inputs, attend)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        return self._decoder.logits(hidden_RD)

    def logits_part(self, hidden_RD: Tensor) -> LogitsPart:
        return self._decoder.logits_part(hidden_RD)

    def expert_histogram(self) -> ExpertHistogram | None:
        return self._decoder.expert_histogram
