"""Laws of an allocator: what it declares, and that an engine answers right with such blocks."""

from typing import Any

from jackfield.core.api import CacheLayout, CachePlugin, Discipline
from jackfield.core.testing.engines import GREEDY, Sizes, expected_answer, make_engine, request, run
from jackfield.core.testing.lives import life

CONTEXTS = (1, 8, 100, 2048, 131_072)
POOL_TOKENS = 256


def check_layouts(cache: CachePlugin) -> None:
    """For short and long contexts."""
    for length in CONTEXTS:
        check_layout(cache, length)


def check_layout(cache: CachePlugin, max_model_len: int) -> None:
    """The layout is one, its block size is positive, and the same when asked again."""
    first, second = _layout(cache, max_model_len), _layout(cache, max_model_len)
    name = type(cache).__name__
    assert isinstance(first, CacheLayout), f"{name}.layout returned {first!r}"
    size = first.block_size
    assert type(size) is int and size > 0, f"{name}.layout has the block size {size!r}"
    assert first == second, f"{name}.layout says {first} and then {second}"


def check_blocks(cache: CachePlugin) -> None:
    """Engines with blocks of that size answer right, in whole lives too."""
    size = _layout(cache, 96).block_size
    check_answers(size)
    for overlap in (0, 1, 2):
        life(_first_come, Sizes(-(-48 // size) + 1, size, max_model_len=24, overlap=overlap))


def check_answers(block_size: int) -> None:
    """Prompts around the block's edge, one after another and together, are answered right."""
    sizes = Sizes(max(POOL_TOKENS // block_size, 4), block_size, max_model_len=block_size * 4)
    lengths = [n for n in (block_size - 1, block_size, block_size + 1) if n > 0]
    engine = make_engine(sizes)
    for length in lengths:
        engine.add(request(f"r{length}", range(length), GREEDY.with_(max_tokens=block_size)))
    answers = run(engine)
    for length in lengths:
        right = expected_answer(range(length), block_size)
        assert answers[(f"r{length}", 0)].tokens == right, f"block size {block_size} is wrong"


def _layout(cache: Any, max_model_len: int) -> CacheLayout:
    layout: CacheLayout = cache.layout(max_model_len)
    return layout


def _first_come(context: Any) -> list[Discipline[Any]]:
    return []
