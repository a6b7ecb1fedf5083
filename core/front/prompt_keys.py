"""Keys of a prompt's blocks, made by whoever asks instead of the engine."""

from collections.abc import Sequence

from jackfield.core.engine.door import DoorLimits
from jackfield.core.kv.keys import block_keys


def prompt_keys(ids: Sequence[int], limits: DoorLimits) -> bytes:
    """Keys for `NewRequest`; b"" where they are of no use, or the prompt will be refused anyway."""
    if not limits.shares_blocks or len(ids) > limits.max_model_len:
        return b""
    try:
        return block_keys(ids, limits.block_size)
    except (TypeError, OverflowError):  # no token ids; the door says which, and what they are
        return b""
