"""What can never work is refused at the door, with both numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jackfield.core.api import (
    ContextLengthExceeded,
    NeverFits,
    RequestError,
    SamplingParams,
)
from jackfield.core.engine.guard import shown
from jackfield.core.engine.messages import NewRequest
from jackfield.core.kv.keys import token_bytes

ONLY_INTEGERS = frozenset({int})


class DoorLimits(NamedTuple):
    """What the model and the pool allow. shares_blocks: whether keys of blocks are of use."""

    vocab_size: int
    max_model_len: int
    pool_tokens: int
    block_size: int
    shares_blocks: bool = False


class Admissible(NamedTuple):
    """What the door made of a request: its prompt, which nobody can change any more, the same in 4
    bytes per token, and max_tokens as it is then."""

    prompt: tuple[int, ...]
    tokens: bytes
    max_tokens: int


class Door:
    """Checks a new request. Refusing raises `RequestError`; nothing else has happened then."""

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits

    def check(self, new: NewRequest) -> Admissible:
        """An acceptable request as the engine takes it."""
        prompt = tuple(new.prompt)
        tokens = self._tokens(prompt)
        self._check_ids(new.params)
        self._check_banned(new.banned_sequences)
        return Admissible(prompt, tokens, self._max_tokens(len(prompt), new.params))

    def _tokens(self, prompt: tuple[Any, ...]) -> bytes:
        """All at once, since prompts are long; who is wrong is looked for only if one is."""
        if not prompt:
            raise RequestError("the prompt is empty; it needs at least one token", param="prompt")
        if ONLY_INTEGERS.issuperset(map(type, prompt)):
            try:
                tokens = token_bytes(prompt)
            except OverflowError:
                pass
            else:
                if np.frombuffer(tokens, dtype="<u4").max() < self._limits.vocab_size:
                    return tokens
        self._refuse(prompt)
        raise AssertionError("a token was refused, and none is wrong")

    def _refuse(self, prompt: tuple[Any, ...]) -> None:
        size = self._limits.vocab_size
        for index, token in enumerate(prompt):
            if type(token) is not int or not 0 <= token < size:
                raise RequestError(
                    f"prompt token {index} is {shown(token)}; token ids of this model are integers "
                    f"from 0 to {size - 1}",
                    param="prompt",
                )

    def _check_ids(self, params: SamplingParams) -> None:
        size = self._limits.vocab_size
        for name in ("stop_token_ids", "allowed_token_ids", "logit_bias"):
            for token in getattr(params, name) or ():
                if token >= size:
                    raise RequestError(
                        f"{name} holds {token}; token ids of this model end at {size - 1}",
                        param=name,
                    )

    def _check_banned(self, sequences: Sequence[Sequence[Any]]) -> None:
        size = self._limits.vocab_size
        for sequence in sequences:
            known = all(type(token) is int and 0 <= token < size for token in sequence)
            if not len(sequence) or not known:
                raise RequestError(
                    f"bad_words holds the token sequence {shown(list(sequence))}; each needs at "
                    f"least one token id, from 0 to {size - 1}",
                    param="bad_words",
                )

    def _max_tokens(self, length: int, params: SamplingParams) -> int:
        limits = self._limits
        context = limits.max_model_len
        if length > context:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {context} tokens, but the prompt has "
                f"{length}; shorten it to at most {context} tokens"
            )
        if params.max_tokens == 0:
            wanted = 0
        elif length == context:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {context} tokens and the prompt has "
                f"{length}, so there is no room for an answer; shorten the prompt"
            )
        elif params.max_tokens is None:
            wanted = min(context, limits.pool_tokens) - length
        else:
            wanted = min(params.max_tokens, context - length)
        self._check_pool(length, max(wanted, min(1, params.max_tokens or 1)))
        if params.min_tokens > wanted:
            raise RequestError(
                f"min_tokens is {params.min_tokens}, but only {wanted} tokens fit after a prompt "
                f"of {length}; the context holds {context}",
                param="min_tokens",
            )
        return wanted

    def _check_pool(self, length: int, wanted: int) -> None:
        size = self._limits.block_size
        needed = -(-(length + wanted) // size)
        blocks = self._limits.pool_tokens // size
        if needed > blocks:
            raise NeverFits(
                f"the request can grow to {length + wanted} tokens, which needs {needed} KV blocks "
                f"of {size}; the whole pool has {blocks}; lower max_tokens or shorten the prompt"
            )
