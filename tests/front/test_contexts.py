"""Who asks, offline: one context for all prompts or one each, and deadlines on the clock."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, AsyncLLM, RequestContext, SamplingParams
from jackfield.core.api import RequestError

ONE = SamplingParams(max_tokens=1)
A, B = RequestContext("a", "gold", 4), RequestContext("b", labels={"weight": "2"})


@pytest.fixture(scope="module")
def llm(folder: Path, small: dict[str, Any]) -> Iterator[LLM]:
    with LLM(folder, **small) as made:
        yield made


def seen(llm: LLM, monkeypatch: pytest.MonkeyPatch, **given: Any) -> list[RequestContext]:
    """The contexts that two prompts have in the engine."""
    found: list[RequestContext] = []
    engine = llm.assembly.engine
    add = engine.add

    def watch(new: Any, *more: Any) -> None:
        found.append(new.context)
        add(new, *more)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "add", watch)
        llm.generate(["x", "y"], ONE, use_tqdm=False, **given)
    return found


def test_one_for_all_or_one_each(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(llm, monkeypatch) == [RequestContext()] * 2
    assert seen(llm, monkeypatch, context=A) == [A, A]
    assert seen(llm, monkeypatch, context=[A, B]) == [A, B]


def test_a_priority_goes_over_that_of_the_context(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [one.priority for one in seen(llm, monkeypatch, context=A, priority=0)] == [0, 0]
    found = seen(llm, monkeypatch, context=[A, B], priority=[7, 8])
    assert found == [A._replace(priority=7), B._replace(priority=8)]


def test_as_many_as_there_are_prompts(llm: LLM) -> None:
    with pytest.raises(RequestError, match="1 contexts for 2 prompts"):
        llm.generate(["x", "y"], ONE, context=[A], use_tqdm=False)


def test_a_deadline_is_on_the_clock_of_the_engine(llm: LLM) -> None:
    before = llm.assembly.clock.now()
    assert before + 5 <= llm.deadline(5) <= time.monotonic() + 5


async def test_who_is_there(folder: Path, small: dict[str, Any]) -> None:
    llm = AsyncLLM(folder, **small)
    params = ONE.with_(max_tokens=100, ignore_eos=True)
    stream = llm.generate("x", params, context=A._replace(deadline=llm.deadline(9)))
    try:
        await anext(aiter(stream))
        (row,) = (await llm.requests(state="running")).rows
        assert (row.tenant, row.tier, row.priority, row.state) == ("a", "gold", 4, "running")
        assert row.deadline is not None and 0 < row.deadline <= 9
        assert (await llm.requests(state="parked")).rows == []
    finally:
        await llm.close()
