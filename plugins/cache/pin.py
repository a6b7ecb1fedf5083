"""Pins and priorities: what is pinned goes last, and what matters less goes first."""

from jackfield.core.api import BlockMeta, EvictionSpace, Evictor, EvictorPlugin, Reordering

ORDINARY = (False, 0)


class PinEvictor(Reordering):
    """The key of a block is whether it is pinned, and its priority."""

    def key(self, meta: BlockMeta) -> tuple[bool, int] | None:
        key = (meta.pinned, meta.priority)
        return None if key == ORDINARY else key

    def goes_early(self, key: tuple[bool, int], now: float) -> bool:
        return key < ORDINARY


class Pin(EvictorPlugin):
    """Blocks that are not pinned and have the priority 0 go in the order of the inner evictor.

    Before them go those with a lower priority, after them those with a higher one, and then those
    that are pinned, a lower priority first. Of blocks that are alike in both, who was used least
    recently goes first, whatever the inner evictor is. A pin lasts until `update` takes it back,
    also if the block has an expiry.

    Guarantee: nothing pinned goes while anything else can.

    Source: the retention priorities of TensorRT-LLM. That a pin gives way is our own: an engine
    never comes to a halt because of one.
    """

    wraps = True

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        assert inner is not None, "pin stands before another evictor"
        return PinEvictor(inner)
