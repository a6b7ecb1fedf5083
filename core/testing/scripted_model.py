"""A model whose answers are written down, for tests of what happens to tokens after the model.

It is a model plugin like any other: give it to an engine through an entry point of the group
`jackfield.v1.models` named `Scripted`. `write_scripted_model` writes folders for it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.errors import ModelError
from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend, LayerGroup, ModelInputs, ModelSpec, Shard, Weights

HEAD_DIM = 16
BASE = 16
"""Token ids travel through the KV cache as digits that every element type holds exactly."""
DIGITS = 5
FORCE = 100.0
ANCHOR = "anchor"


class ScriptedModel:
    """Answers to a prompt with the tokens that config.json lists for its first token.

    `"script": {"<first id of the prompt>": [ids...]}`; when the script is over, and for prompts
    without one, it goes on with the first `eos_token_id`. The next token has the logit 100, all
    others 0. The first token is read back from the KV cache through attention, and the place in
    the script is the position, so an answer survives chunks, batches and preemptions only if the
    engine keeps the cache right; tokens that were sampled otherwise do not matter.
    `"step_seconds"` makes each step take at least so long, without using a processor.
    """

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> ModelSpec:
        return ModelSpec(
            num_layers=1,
            hidden_size=HEAD_DIM,
            num_heads=1,
            num_kv_heads=1,
            head_dim=HEAD_DIM,
            vocab_size=int(config["vocab_size"]),
            max_positions=int(config["max_position_embeddings"]),
            softmax_scale=1.0,
            groups=(LayerGroup((0,)),),
            num_parameters=1,
            uses_prompt_lens=True,
        )

    def __init__(
        self, config: Mapping[str, Any], ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        self._like = weights.take(ANCHOR, (1,))
        self._vocab_size = int(config["vocab_size"])
        self._step_seconds = float(config.get("step_seconds", 0.0))
        script = _checked(config.get("script"), self._vocab_size)
        ends = config["eos_token_id"]
        end = int(ends[0] if isinstance(ends, list) else ends)
        longest = max(map(len, script.values()), default=0) + 1
        self._script_VL = self._like.new_full((self._vocab_size, longest), end, dtype=torch.int64)
        for first, answer in script.items():
            self._script_VL[first, : len(answer)] = torch.tensor(answer, dtype=torch.int64)

    def forward(self, inputs: ModelInputs, attend: Attend) -> Tensor:
        assert inputs.prompt_lens_T is not None, "describe asks for them"
        time.sleep(self._step_seconds)
        first_T = self._first(inputs, attend)
        place_T = inputs.positions_T - inputs.prompt_lens_T + 1
        place_T = place_T.clamp(0, self._script_VL.shape[1] - 1)
        return self._script_VL[first_T, place_T].unsqueeze(1)

    def _first(self, inputs: ModelInputs, attend: Attend) -> Tensor:
        """The first token of each sequence: only its key answers to the query."""
        count = len(inputs.ids_T)
        q_TNH, k_TKH, v_TKH = (self._like.new_zeros(count, 1, HEAD_DIM) for _ in range(3))
        q_TNH[:, 0, 0] = BASE
        k_TKH[:, 0, 0] = BASE * (inputs.positions_T == 0)
        for place in range(DIGITS):
            v_TKH[:, 0, place] = inputs.ids_T // BASE**place % BASE
        digits_TH = attend(0, q_TNH, k_TKH, v_TKH)[:, 0].round().long()
        weights_H = torch.tensor([BASE**place for place in range(DIGITS)]).to(digits_TH)
        return (digits_TH[:, :DIGITS] * weights_H).sum(dim=1)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        logits_RV = torch.zeros(len(hidden_RD), self._vocab_size, device=hidden_RD.device)
        return logits_RV.scatter_(1, hidden_RD, FORCE)


def _checked(script: Any, vocab_size: int) -> Mapping[int, Sequence[int]]:
    if not isinstance(script, dict):
        raise ModelError(f"config.json: script is {script!r}; expected lists of ids by first id.")
    found = {int(first): list(answer) for first, answer in script.items()}
    for first, answer in found.items():
        if not all(0 <= token < vocab_size for token in (first, *answer)):
            raise ModelError(
                f"config.json: script holds {first}: {answer}; ids run from 0 to {vocab_size - 1}."
            )
    return found
