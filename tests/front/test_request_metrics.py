"""`RequestOutput.metrics`, of engines in this thread and in another one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, AsyncLLM, RequestOutput, SamplingParams
from jackfield.core.api import FinishReason
from jackfield.core.engine.messages import Delta
from jackfield.core.engine.timings import Timings
from jackfield.core.front import answers
from jackfield.core.front.answers import Answers
from jackfield.core.front.prompts import Prompt
from jackfield.core.front.request_metrics import RequestMetrics
from jackfield.core.text.tokenizer import Tokenizer

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(folder: Path, small: dict[str, Any]) -> Iterator[LLM]:
    with LLM(folder, **small) as made:
        yield made


def check_whole(output: RequestOutput) -> None:
    """Every time was measured, and they fit together."""
    found = output.metrics
    assert found is not None and None not in found
    assert found.queued_time is not None and found.prefill_time is not None
    assert found.time_to_first_token == pytest.approx(found.queued_time + found.prefill_time)
    assert found.decode_time is not None and found.total_time is not None
    assert found.time_to_first_token + found.decode_time <= found.total_time + 1e-9
    assert min(found) >= 0 and found.prefill_time > 0


def test_offline(llm: LLM) -> None:
    for output in llm.generate(["the cat", "one"], GREEDY, use_tqdm=False):
        check_whole(output)
        assert output.metrics is not None
        assert output.metrics.num_computed_tokens == len(output.prompt_token_ids)


def test_several_answers_are_added_up(llm: LLM) -> None:
    (output,) = llm.generate(["x" * 20], GREEDY.with_(n=3), use_tqdm=False)
    check_whole(output)
    found, length = output.metrics, len(output.prompt_token_ids)
    assert found is not None
    assert (found.num_cached_tokens, found.num_computed_tokens) == (
        2 * (length - 1),
        length + 2,
    )


def test_an_answer_that_its_text_ended(llm: LLM) -> None:
    (whole,) = llm.generate(["the cat"], GREEDY, use_tqdm=False)
    stop = whole.outputs[0].text[2]
    before = llm.assembly.engine.metrics.finished["abort"]
    (output,) = llm.generate(["the cat"], GREEDY.with_(stop=stop), use_tqdm=False)
    assert output.outputs[0].stop_reason == stop
    check_whole(output)
    assert llm.assembly.engine.metrics.finished["abort"] == before


async def test_in_another_thread(folder: Path, small: dict[str, Any]) -> None:
    llm = AsyncLLM(folder, **small)
    outputs = [output async for output in llm.generate("the cat", GREEDY)]
    assert [output.metrics is None for output in outputs] == [True] * (len(outputs) - 1) + [False]
    check_whole(outputs[-1])

    async def aborted(prompt: str) -> AsyncIterator[RequestOutput]:
        async for output in llm.generate(prompt, GREEDY.with_(max_tokens=200), request_id="a"):
            await llm.abort("a")
            yield output

    last = [output async for output in aborted("the cat")][-1]
    assert last.outputs[0].finish_reason == "abort"
    check_whole(last)
    await llm.close()


def take(*deltas: Delta, n: int = 1, tokenizer: Tokenizer | None = None, **more: Any) -> Any:
    made = Answers("a", Prompt("x", [1]), SamplingParams(n=n, **more), tokenizer)
    for delta in deltas:
        made.take(delta)
    return made.output.metrics


def test_of_several_answers_the_first_to_start_and_the_last_to_end() -> None:
    one = Delta("a", 0, [1], FinishReason.STOP, timings=Timings(1, 3, 5, 6, 1, 0, 9))
    two = Delta("a", 1, [], FinishReason.ABORT, timings=Timings(2, 2.5, 9, 9.5, 2, 8, 1))
    assert take(one, two, n=2) == RequestMetrics(1, 1.5, 2.5, 6.5, 9.5, 3, 8, 10)
    assert take(one, n=2) is None


def test_what_the_engine_never_had_has_no_times() -> None:
    assert take(Delta("a", 0, [], FinishReason.ABORT)) == RequestMetrics()
    refused = Delta("a", 0, [], FinishReason.ERROR, timings=Timings(None, None, None, 2, 0, 0, 0))
    assert take(refused) == RequestMetrics(total_time=2)


def test_the_end_by_the_text_is_timed_here(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((50.0, 52.5))
    monkeypatch.setattr(answers, "monotonic", lambda: next(moments))
    tokenizer = llm.assembly.tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode("ab", add_special_tokens=False)
    found = take(
        Delta("a", 0, ids[:1], timings=Timings(1, 3, 3, 3, 0, 0, 1)),
        Delta("a", 0, ids[1:]),
        tokenizer=tokenizer, stop="b",
    )  # fmt: skip
    assert found == RequestMetrics(1, 2, 3, 2.5, 5.5, 0, 0, 1)
