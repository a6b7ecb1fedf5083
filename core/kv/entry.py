"""One cached block: what it holds, where its copies are, and who counts on it."""

from collections.abc import Iterator

NO_BLOCK = -1


class Entry:
    """The content of one full block, as long as a copy of it is anywhere.

    parent: the entry of the block before it. tokens: of this block, 4 bytes each. block: of the
    pool, NO_BLOCK if it is not on the device. loading: the device's copy is being filled. slots:
    tier -> slot. anchors: what keeps the device's copy: a holder, transfers, and each child on the
    device that is kept itself. busy: transfers that touch the device's copy, and loads that hold
    it. transfers: the former alone. step: the last one that may have written it. leases: preempted
    requests that wait to go on with it.
    """

    __slots__ = (
        "anchors",
        "block",
        "busy",
        "dead",
        "depth",
        "device_children",
        "expires",
        "first_child",
        "id",
        "is_copied",
        "is_evictable",
        "key",
        "leases",
        "loading",
        "next_sibling",
        "parent",
        "pinned",
        "previous_sibling",
        "priority",
        "slots",
        "space",
        "step",
        "tokens",
        "transfers",
    )  # fmt: skip

    def __init__(
        self, number: int, parent: "Entry | None", space: bytes, key: bytes, tokens: bytes
    ) -> None:
        self.id = number
        self.parent = parent
        self.space = space
        self.key = key
        self.tokens = tokens
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.block = NO_BLOCK
        self.loading = False
        self.slots: dict[str, int] = {}
        self.anchors = 0
        self.busy = 0
        self.transfers = 0
        self.device_children = 0
        self.step = -1
        self.leases = 0
        self.priority = 0
        self.pinned = False
        self.expires: float | None = None
        self.dead = False
        self.is_evictable = False
        self.is_copied = False
        self.first_child: Entry | None = None
        self.next_sibling: Entry | None = None
        self.previous_sibling: Entry | None = None
        if parent is not None:
            self._join(parent)

    def __repr__(self) -> str:
        return f"Entry({self.id}, depth={self.depth}, block={self.block}, slots={self.slots})"

    @property
    def on_device(self) -> bool:
        """Whether the pool holds its content, complete."""
        return self.block != NO_BLOCK and not self.loading

    @property
    def is_idle(self) -> bool:
        """Whether its block of the pool could be had, once its children have left."""
        return self.block != NO_BLOCK and self.anchors == 0

    @property
    def is_needed(self) -> bool:
        """Whether somebody counts on it: a holder, a transfer, a lease, or what builds on it."""
        return bool(self.anchors or self.leases or self.first_child is not None)

    def _join(self, parent: "Entry") -> None:
        self.next_sibling = parent.first_child
        if parent.first_child is not None:
            parent.first_child.previous_sibling = self
        parent.first_child = self

    def unlink(self) -> None:
        """Leave the parent; the entry is dead, and so are its children."""
        before, after = self.previous_sibling, self.next_sibling
        if before is not None:
            before.next_sibling = after
        elif self.parent is not None:
            self.parent.first_child = after
        if after is not None:
            after.previous_sibling = before
        self.previous_sibling = self.next_sibling = None

    def children(self) -> Iterator["Entry"]:
        """Entries that build on this one."""
        child = self.first_child
        while child is not None:
            yield child
            child = child.next_sibling

    def family(self) -> list["Entry"]:
        """The entry and all that build on it, children after their parents."""
        found = [self]
        for entry in found:
            found.extend(entry.children())
        return found
