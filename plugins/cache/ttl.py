"""Time to live: what has expired goes first, what has not yet goes last."""

from jackfield.core.api import BlockMeta, EvictionSpace, Evictor, EvictorPlugin, Reordering


class TtlEvictor(Reordering):
    """The key of a block is its expiry."""

    def key(self, meta: BlockMeta) -> float | None:
        return meta.expires

    def goes_early(self, key: float, now: float) -> bool:
        return key <= now


class Ttl(EvictorPlugin):
    """Blocks without an expiry go in the order of the inner evictor.

    Before them go those whose expiry has passed, and after them those whose expiry is still to
    come, both in the order of expiry and then of last use.

    Guarantee: nothing that should be kept until later goes while anything else can.

    Source: Li et al., Continuum, arXiv 2511.02230, 2025 (a time to live for the KV cache).
    """

    wraps = True

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        assert inner is not None, "ttl stands before another evictor"
        return TtlEvictor(inner)
