"""Keys of a prompt's blocks, made by whoever asks instead of the engine."""

from collections.abc import Sequence

from jackfield.core.api import KEY_BYTES, TOKEN_BYTES
from jackfield.core.engine.door import DoorLimits
from jackfield.core.kv.keys import block_keys, common_blocks, keys_of


def prompt_keys(ids: Sequence[int], limits: DoorLimits) -> bytes:
    """Keys for `NewRequest`; b"" where they are of no use, or the prompt will be refused anyway."""
    if not limits.shares_blocks or len(ids) > limits.max_model_len:
        return b""
    try:
        return block_keys(ids, limits.block_size)
    except (TypeError, OverflowError):  # no token ids; the door says which, and what they are
        return b""


class PromptKeys:
    """The same for all prompts of one caller: what several begin with is hashed once. Who begins
    like nobody before is left to the engine, which may have time for it later."""

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits
        self._width = limits.block_size * TOKEN_BYTES
        self._made: dict[bytes, tuple[bytes, bytes]] = {}
        self._common = 0

    def of(self, tokens: bytes) -> bytes:
        """Keys of an acceptable prompt, whose tokens have 4 bytes each; b"" = it is the first of
        its beginning, or they are of no use."""
        if not self._limits.shares_blocks or len(tokens) < self._width:
            return b""
        head = tokens[: self._width]
        last = self._made.get(head)
        keys = b"" if last is None else self._keys(tokens, *last)
        self._made[head] = tokens, keys
        return keys

    def _keys(self, tokens: bytes, before: bytes, keys: bytes) -> bytes:
        """before: the last prompt with the same first block, whose keys these are."""
        keys = keys or keys_of(before, self._limits.block_size)
        self._common = start = common_blocks(tokens, before, self._width, self._common)
        known = keys[: start * KEY_BYTES]
        rest = keys_of(tokens, self._limits.block_size, start=start, parent=known[-KEY_BYTES:])
        return known + rest
