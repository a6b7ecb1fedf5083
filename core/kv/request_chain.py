"""What the cache knows of one request: its blocks as content, and which of them were found."""

from collections.abc import Sequence

from jackfield.core.api import KEY_BYTES, TOKEN_BYTES, CacheHints, Chain, RequestView
from jackfield.core.kv.entry import Entry
from jackfield.core.kv.keys import common_keys, keys_of, token_bytes


class RequestChain:
    """The known tokens of a request with the keys of their full blocks, made when somebody asks.

    entries: of its first blocks, while it holds them. copied: the entry whose block was copied for
    it. found: the entries that hold its content, from the start on and without a gap, as they were
    at `epoch`. leased: what a preempted request waits to go on with. closed: further blocks are
    not published while it runs, since somebody else has published the same. tainted: its blocks
    may hold something else than its tokens. head: space and key of the first block of its prompt;
    b"" = it has none. num_offered: of entries, that are copied to the tier below, or were.
    recomputes: it does not wait for a tier again.
    """

    __slots__ = (
        "_data", "_keys", "_view", "_width", "block_size", "closed", "copied", "entries", "epoch",
        "found", "head", "hints", "leased", "num_offered", "owner", "recomputes", "spaces",
        "tainted",
    )  # fmt: skip

    def __init__(
        self,
        owner: RequestView,
        hints: CacheHints,
        spaces: tuple[tuple[int, bytes], ...],
        block_size: int,
        tokens: bytes,
        keys: bytes,
    ) -> None:
        """tokens: of the prompt, as `token_bytes` makes them. keys: of its full blocks; b"" = the
        chain makes them."""
        self.owner = owner
        self.hints = hints
        self.spaces = spaces
        self.block_size = block_size
        self.entries: list[Entry] = []
        self.found: list[Entry] = []
        self.copied: Entry | None = None
        self.epoch = -1
        self.leased: list[Entry] = []
        self.num_offered = 0
        self.closed = False
        self.tainted = False
        self.recomputes = False
        self._data = tokens
        self._width = width = block_size * TOKEN_BYTES
        self._view: Chain | None = None
        expected = len(tokens) // width * KEY_BYTES
        self._keys = keys if len(keys) == expected else keys_of(tokens[:width], block_size)
        self.head = spaces[0][1] + self._keys[:KEY_BYTES] if self._keys else b""

    @property
    def num_tokens(self) -> int:
        """Tokens that it knows."""
        return len(self._data) // TOKEN_BYTES

    @property
    def num_blocks(self) -> int:
        """Full blocks of known tokens."""
        return len(self._data) // self._width

    @property
    def keys(self) -> bytes:
        """Of all full blocks, 16 bytes each."""
        done = len(self._keys) // KEY_BYTES
        if done < self.num_blocks:
            parent = self._keys[-KEY_BYTES:]
            self._keys += keys_of(self._data, self.block_size, start=done, parent=parent)
        return self._keys

    @property
    def view(self) -> Chain:
        """What an index is asked for."""
        if self._view is None:
            self._view = Chain(self.keys, self._data, self.spaces)
        return self._view

    def extend(self, tokens: Sequence[int]) -> None:
        """Further tokens are known."""
        if not tokens:
            return
        before = self.num_blocks
        self._data += token_bytes(tokens)
        if self.num_blocks > before:
            self.epoch = -1
        self._view = None

    def tokens(self, index: int) -> bytes:
        """The tokens of one full block."""
        return self._data[index * self._width : (index + 1) * self._width]

    def space(self, index: int) -> bytes:
        """The space of one block."""
        for end, space in self.spaces:
            if index < end:
                return space
        raise AssertionError(f"block {index} is behind the last space")

    def is_alike(self, other: "RequestChain", index: int) -> bool:
        """Whether both have the same key for that block, if they have such a block."""
        place = slice(index * KEY_BYTES, (index + 1) * KEY_BYTES)
        key = self.keys[place]
        return bool(key) and key == other.keys[place]

    def common_blocks(self, other: "RequestChain") -> int:
        """How many blocks both have in common, from the start on."""
        common = common_keys(self.keys, other.keys)
        if self.spaces != other.spaces:
            common = min(common, common_space(self.spaces, other.spaces))
        return common


def common_space(mine: tuple[tuple[int, bytes], ...], theirs: tuple[tuple[int, bytes], ...]) -> int:
    """Blocks up to which both are in the same spaces."""
    first, second = mine[0], theirs[0]
    return min(first[0], second[0]) if first[1] == second[1] else 0
