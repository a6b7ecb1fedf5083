"""Fixed-size blocks: the allocator of the default stack (Kwon et al., PagedAttention, 2023)."""

from typing import Literal

from jackfield.core.api import CacheAxis, CacheLayout, CachePlugin, PolicyConfig, hookimpl


class PagedConfig(PolicyConfig):
    """block_size: token positions per block."""

    block_size: Literal[8, 16, 32, 64] = 16


class Paged(CachePlugin):
    """Cuts the pool into blocks of one size; a request holds as many as its tokens need."""

    Config = PagedConfig
    axis = CacheAxis.ALLOCATOR

    @hookimpl
    def layout(self, max_model_len: int) -> CacheLayout:
        """One size for every layer group."""
        return CacheLayout(self.config.block_size)
