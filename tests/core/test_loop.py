"""Fixed scenarios of the loop, each with every depth of overlap where it matters."""

from collections.abc import Sequence
from typing import Any

import pytest

from jackfield.core.api import (
    EngineStoppedError,
    FinishReason,
    LoadView,
    RequestContext,
    RequestView,
    Shape,
    StepView,
    Verdict,
)
from jackfield.core.engine.decisions import Action
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.request import Status
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import (
    GREEDY,
    VOCAB,
    Answer,
    Sizes,
    absorb,
    context_for,
    expected_answer,
    make_engine,
    request,
    run,
)
from jackfield.core.testing.failing_executor import FailingExecutor
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.oracle import Question, expected
from jackfield.core.testing.tree_laws import Halves

OVERLAPS = [0, 1, 2]
SMALL = Sizes(num_blocks=8, block_size=2, max_seqs=4, max_model_len=16)
Answers = dict[tuple[str, int], Answer]


def crowd(engine: Engine, count: int = 4) -> None:
    for number in range(count):
        engine.add(request(f"r{number}", [number + 1, 2, 3]))


def steps(engine: Engine, count: int, answers: Answers) -> None:
    for _ in range(count):
        absorb(answers, engine.step())
        engine.check()


def actions(engine: Engine, name: str) -> list[Action]:
    return [decision.action for decision in engine.explain(name)]


def is_empty(engine: Engine) -> bool:
    pool = engine.lifecycle.planner.pool
    return not engine.has_work and pool.num_free == pool.num_blocks


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_answers_are_right_while_memory_is_short(overlap: int) -> None:
    engine = make_engine(Sizes(8, 2, max_seqs=4, max_model_len=16, overlap=overlap))
    crowd(engine)
    answers = run(engine)
    assert engine.metrics.preemptions > 0
    for number in range(4):
        assert answers[(f"r{number}", 0)].tokens == expected_answer([number + 1, 2, 3], 8)
        assert answers[(f"r{number}", 0)].finish is FinishReason.LENGTH
    assert is_empty(engine)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_steps_in_flight_are_as_many_as_allowed(overlap: int) -> None:
    engine = make_engine(Sizes(overlap=overlap))
    engine.add(request("r", [1, 2, 3]))
    deepest = 0
    while engine.has_work:
        engine.step()
        deepest = max(deepest, len(engine._in_flight))
    assert deepest == overlap


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("after", range(7))
def test_an_abort_at_any_time_frees_everything(after: int, overlap: int) -> None:
    engine = make_engine(Sizes(overlap=overlap))
    answers: Answers = {}
    engine.add(request("gone", [1, 2, 3, 4, 5] * 4))
    engine.add(request("stays", [6]))
    steps(engine, after, answers)
    engine.abort("gone")
    engine.check()
    engine.abort("gone")
    engine.abort("unknown")
    answers.update(run_on(engine, answers))
    assert answers[("gone", 0)].finish is FinishReason.ABORT
    right = expected_answer([1, 2, 3, 4, 5] * 4, 8)
    assert answers[("gone", 0)].tokens == right[: len(answers[("gone", 0)].tokens)]
    assert answers[("stays", 0)].tokens == expected_answer([6], 8)
    assert is_empty(engine)


def run_on(engine: Engine, answers: Answers) -> Answers:
    """Like `run`, after some answers came already."""
    for _ in range(1000):
        if not engine.has_work:
            return answers
        steps(engine, 1, answers)
    raise AssertionError("the engine still has work")


def test_an_abort_before_the_first_step() -> None:
    engine = make_engine()
    engine.add(request("r", [1]))
    engine.abort("r")
    assert engine.has_work and not engine.is_idle, "the news of the end is still to be fetched"
    assert run(engine)[("r", 0)].finish is FinishReason.ABORT
    assert is_empty(engine)


def test_an_abort_while_waiting_for_a_seat() -> None:
    engine = make_engine(Sizes(max_seqs=1))
    for name in "ab":
        engine.add(request(name, [1]))
    engine.step()
    engine.abort("b")
    engine.check()
    answers = run(engine)
    assert answers[("b", 0)].tokens == [] and answers[("b", 0)].finish is FinishReason.ABORT


class Defers:
    """Defers everybody, until the clock says so."""

    def __init__(self, until: float, step: float = 1.0) -> None:
        self.until, self.pause = until, step
        self.asked = 0

    def admit(self, requests: Sequence[RequestView], load: LoadView) -> list[Verdict]:
        self.asked += 1
        if load.now >= self.until:
            return [Verdict.accept()] * len(requests)
        return [Verdict.defer(load.now + self.pause, "not yet")] * len(requests)


def test_an_abort_while_deferred() -> None:
    engine = make_engine(advisors={"defers": Defers(5.0)})
    engine.add(request("r", [1]))
    engine.step()
    assert engine.is_idle and engine.next_alarm == 1.0
    engine.abort("r")
    assert run(engine)[("r", 0)].finish is FinishReason.ABORT
    assert engine.next_alarm is None


def test_deferred_requests_are_asked_again_in_time() -> None:
    clock, advisor = ManualClock(), Defers(2.5)
    engine = make_engine(advisors={"defers": advisor}, clock=clock)
    engine.add(request("r", [1]))
    answers: Answers = {}
    for _ in range(3):
        steps(engine, 3, answers)
        assert not answers
        clock.advance(1.0)
    assert run(engine)[("r", 0)].tokens == expected_answer([1], 8)
    assert advisor.asked == 4
    assert actions(engine, "r") == [
        Action.ARRIVE, Action.PARK, Action.WAKE, Action.PARK, Action.WAKE, Action.PARK,
        Action.WAKE, Action.ADMIT, Action.FINISH,
    ]  # fmt: skip
    assert engine.explain("r")[1].plugin == "defers"
    assert engine.explain("r")[1].code == "not yet"


def test_deferred_requests_hold_no_seat() -> None:
    class Vips:
        def admit(self, requests: Sequence[RequestView], load: LoadView) -> list[Verdict]:
            wait = Verdict.defer(load.now + 100.0)
            return [wait if view.id.startswith("low") else Verdict.accept() for view in requests]

    engine = make_engine(Sizes(max_seqs=2), advisors={"vips": Vips()})
    for number in range(20):
        engine.add(request(f"low{number}", [1]))
    engine.add(request("vip", [2]))
    answers: Answers = {}
    steps(engine, 9, answers)
    assert answers[("vip", 0)].finish is FinishReason.LENGTH
    assert len(engine.lifecycle.gates) == 20


def test_who_is_deferred_for_ever_fails_with_the_reason() -> None:
    clock = ManualClock()
    engine = make_engine(advisors={"defers": Defers(1e9, 100.0)}, clock=clock)
    engine.add(request("r", [1]))
    answers: Answers = {}
    for _ in range(9):
        steps(engine, 1, answers)
        clock.advance(100.0)
    answer = answers[("r", 0)]
    assert answer.finish is FinishReason.ERROR
    assert answer.error == "deferred by defers for more than 600 s: not yet"
    assert not engine.has_work


def test_a_rejection_says_who_and_why() -> None:
    class Full:
        def admit(self, requests: Sequence[RequestView], load: LoadView) -> list[Verdict]:
            return [Verdict.reject("queue_full", 2.0)] * len(requests)

    engine = make_engine(advisors={"full": Full()})
    engine.add(request("r", [1], GREEDY.with_(n=2)))
    answers = run(engine)
    told = "refused by full: queue_full; try again in 2 s"
    assert {answer.error for answer in answers.values()} == {told}
    assert len(answers) == 2
    assert Action.REJECT in actions(engine, "r") and engine.metrics.rejections.total() == 2


def test_answers_to_one_prompt_share_its_blocks() -> None:
    engine = make_engine(Sizes(num_blocks=32, max_tokens=32))
    prompt = list(range(13))
    engine.add(request("r", prompt, GREEDY.with_(n=3)))
    answers: Answers = {}
    steps(engine, 2, answers)
    pool = engine.lifecycle.planner.pool
    assert pool.num_blocks - pool.num_free == 3 + 3, "three shared and one of each"
    assert engine.metrics.shared_tokens == 24
    for answer in run_on(engine, answers).values():
        assert answer.tokens == expected_answer(prompt, 8)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("after", range(5))
def test_the_others_go_on_when_the_first_answer_is_aborted(after: int, overlap: int) -> None:
    engine = make_engine(Sizes(num_blocks=16, max_tokens=8, overlap=overlap))
    prompt = list(range(20))
    engine.add(request("r", prompt, GREEDY.with_(n=3)))
    answers: Answers = {}
    steps(engine, after, answers)
    engine.abort("r", 0)
    engine.check()
    answers = run_on(engine, answers)
    assert answers[("r", 0)].finish is FinishReason.ABORT
    for index in (1, 2):
        assert answers[("r", index)].tokens == expected_answer(prompt, 8)
    assert is_empty(engine)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_more_answers_than_seats(overlap: int) -> None:
    engine = make_engine(Sizes(num_blocks=8, max_seqs=2, max_model_len=32, overlap=overlap))
    engine.add(request("r", list(range(9)), GREEDY.with_(n=9)))
    answers = run(engine)
    assert len(answers) == 9
    assert all(answer.tokens == expected_answer(range(9), 8) for answer in answers.values())


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("count", [1, 3])
def test_no_answer_at_all(overlap: int, count: int) -> None:
    engine = make_engine(Sizes(overlap=overlap))
    prompt = list(range(30))
    params = GREEDY.with_(max_tokens=0, n=count, prompt_logprobs=0)
    engine.add(request("r", prompt, params))
    engine.add(request("s", [1]))
    scores: list[Any] = []
    answers: Answers = {}
    while engine.has_work:
        deltas = engine.step()
        scores += [d.prompt_scores for d in deltas if d.prompt_scores is not None]
        absorb(answers, deltas)
        engine.check()
    for index in range(count):
        assert answers[("r", index)].tokens == []
        assert answers[("r", index)].finish is FinishReason.LENGTH
    assert [sorted(one) for one in scores] == [list(range(1, 30))]
    assert answers[("s", 0)].tokens == expected_answer([1], 8)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_scores_of_the_prompt_come_once_and_whole(overlap: int) -> None:
    engine = make_engine(Sizes(8, 2, max_seqs=4, max_model_len=16, overlap=overlap))
    for number in range(4):
        engine.add(request(f"r{number}", [number + 1, 2, 3], GREEDY.with_(prompt_logprobs=1)))
    found: dict[str, list[list[int]]] = {}
    while engine.has_work:
        for delta in engine.step():
            if delta.prompt_scores is not None:
                found.setdefault(delta.id, []).append(sorted(delta.prompt_scores))
    assert engine.metrics.preemptions > 0
    assert found == {f"r{number}": [[1, 2]] for number in range(4)}


IDS = 6


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_banned_sequences_never_appear(overlap: int) -> None:
    banned = [[0, 1], [2], [3, 4, 5], [1, 1]]
    sizes = Sizes(10, 2, max_seqs=4, max_model_len=40, overlap=overlap)
    engine = make_engine(sizes, executor=FakeExecutor(2, IDS))
    for number in range(4):
        params = GREEDY.with_(max_tokens=14)
        engine.add(request(f"r{number}", [number], params, banned_sequences=banned))
    engine.add(request("free", [9], GREEDY.with_(max_tokens=14)))
    answers = run(engine)
    for number in range(4):
        tokens = answers[(f"r{number}", 0)].tokens
        assert tokens == expected(Question([number], 14, IDS, banned=banned))[0]
        text = ",".join(map(str, tokens)) + ","
        assert not any(",".join(map(str, one)) + "," in text for one in banned)
    assert answers[("free", 0)].tokens == expected(Question([9], 14, IDS))[0]
    assert engine.metrics.preemptions > 0


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_late_binding_that_raises_costs_its_own_request(overlap: int) -> None:
    class Broken:
        def banned(self, output: Sequence[int]) -> Sequence[int]:
            if len(output) == 3:
                raise ValueError("no rule for this")
            return []

    engine = make_engine(Sizes(overlap=overlap))
    for name in ("bad", "good"):
        engine.add(request(name, [1, 2], banned_sequences=[[999, 999]]))
    engine._requests["bad"][0].binder = Broken()
    answers = run(engine)
    assert answers[("bad", 0)].error == "its late binding raised ValueError: no rule for this"
    assert answers[("bad", 0)].tokens == expected_answer([1, 2], 3)
    assert answers[("good", 0)].tokens == expected_answer([1, 2], 8)
    assert is_empty(engine)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("phase", ["forward", "sample", "collect"])
@pytest.mark.parametrize("broken", [0, 1, 3])
def test_a_fault_of_the_device_costs_the_requests_of_that_step(
    broken: int, phase: str, overlap: int
) -> None:
    executor = FailingExecutor(4, **{phase: {broken}})
    engine = make_engine(Sizes(max_seqs=2, overlap=overlap), executor=executor)
    answers: Answers = {}
    for name in ("a", "b", "later"):
        engine.add(request(name, [1, 2, 3]))
    answers = run(engine)
    for name in "ab":
        error = answers[(name, 0)].error
        assert error is not None and error.startswith(f"step {broken} failed: DeviceError")
        assert answers[(name, 0)].finish is FinishReason.ERROR
        tokens = answers[(name, 0)].tokens
        assert tokens == expected_answer([1, 2, 3], 8)[: len(tokens)]
    assert answers[("later", 0)].tokens == expected_answer([1, 2, 3], 8)
    assert engine.metrics.failed_steps == 1 and is_empty(engine)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("broken", range(4))
def test_nobody_reads_blocks_of_a_step_that_broke(broken: int, overlap: int) -> None:
    engine = make_engine(Sizes(overlap=overlap), executor=FailingExecutor(4, collect={broken}))
    prompt = list(range(1, 13))
    engine.add(request("r", prompt, GREEDY.with_(n=3)))
    answers = run(engine)
    assert len(answers) == 3
    for answer in answers.values():
        assert answer.error or answer.tokens == expected_answer(prompt, 8)
    assert answers[("r", 0)].error and is_empty(engine)


def test_one_sequence_that_fails_does_not_touch_the_others() -> None:
    executor = FailingExecutor(4, denied={0: "nothing can be sampled"})
    engine = make_engine(executor=executor)
    for name in "ab":
        engine.add(request(name, [1, 2]))
    answers = run(engine)
    assert answers[("a", 0)].error == "nothing can be sampled"
    assert answers[("b", 0)].tokens == expected_answer([1, 2], 8)
    assert actions(engine, "a")[-1] is Action.FAIL and engine.metrics.failed_steps == 0


class Dying(FakeExecutor):
    def collect(self, ticket: Any) -> Any:
        if ticket.plan.number == 1:
            raise EngineStoppedError("the device is gone")
        return super().collect(ticket)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("banned", [[], [[1, 2]]])
def test_a_device_that_is_gone_ends_everybody(banned: list[list[int]], overlap: int) -> None:
    engine = make_engine(Sizes(max_seqs=1, overlap=overlap), executor=Dying(4))
    for name in "ab":
        engine.add(request(name, [1], banned_sequences=banned))
    answers = run(engine, max_steps=50)
    for name in "ab":
        assert "the device is gone" in (answers[(name, 0)].error or "")
    with pytest.raises(EngineStoppedError, match="the device is gone"):
        engine.add(request("c", [1]))


def test_the_log_says_why() -> None:
    engine = make_engine(Sizes(8, 2, max_seqs=3, max_model_len=16))
    crowd(engine)
    run(engine)
    reasons = {
        (decision.action, decision.code, decision.plugin)
        for number in range(4)
        for decision in engine.explain(f"r{number}")
    }
    assert {
        (Action.ADMIT, "order", "discipline"),
        (Action.WAIT, "no_seat", "core"),
        (Action.PREEMPT, "memory_short", "core"),
        (Action.FINISH, "length", "core"),
    } <= reasons
    assert [d.request for d in engine.explain("r2")] == ["r2"] * len(engine.explain("r2"))


def test_the_log_names_the_owner_of_the_victims() -> None:
    class Youngest:
        def victims(self, shortage: Any) -> list[int]:
            return [shortage.candidates[-1].handle]

    engine = make_engine(SMALL, advisors={"youngest": Youngest()})
    crowd(engine)
    run(engine)
    decisions = [decision for number in range(4) for decision in engine.explain(f"r{number}")]
    found = {one.plugin for one in decisions if one.action is Action.PREEMPT}
    assert found == {"youngest"}


class Stops:
    """An executor's next token: 3 after three tokens of the answer, else 1."""

    def __call__(self, prefix: Sequence[int], join: Any) -> int:
        return 3 if (len(prefix) - len(join.prompt)) % 3 == 2 else 1


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize(
    ("params", "length", "finish", "stop"),
    [
        ({}, 3, FinishReason.STOP, None),
        ({"min_tokens": 4}, 6, FinishReason.STOP, None),
        ({"ignore_eos": True}, 8, FinishReason.LENGTH, None),
        ({"ignore_eos": True, "stop_token_ids": [3]}, 3, FinishReason.STOP, 3),
        ({"stop_token_ids": [1]}, 1, FinishReason.STOP, 1),
        ({"stop_token_ids": [1], "min_tokens": 2}, 2, FinishReason.STOP, 1),
        ({"max_tokens": 3}, 3, FinishReason.STOP, None),
        ({"max_tokens": 2}, 2, FinishReason.LENGTH, None),
    ],
)
def test_where_an_answer_ends(
    params: dict[str, Any], length: int, finish: FinishReason, stop: int | None, overlap: int
) -> None:
    executor = FakeExecutor(4, VOCAB, Stops())
    engine = make_engine(Sizes(overlap=overlap), executor=executor, eos_ids=frozenset({3, 4}))
    engine.add(request("r", [5, 6], GREEDY.with_(**params)))
    tokens: list[int] = []
    last = None
    while engine.has_work:
        for delta in engine.step():
            assert last is None, "news after the end"
            tokens += delta.tokens
            last = delta if delta.finish else None
    assert len(tokens) == length
    assert last is not None and (last.finish, last.stop) == (finish, stop)


def test_seeds_decide_and_index_spreads_them() -> None:
    def answer_of(seed: int | None, others: int) -> list[list[int]]:
        engine = make_engine(Sizes(max_seqs=3))
        for number in range(others):
            engine.add(request(f"o{number}", [number]))
        params = GREEDY.with_(temperature=1.0, seed=seed, n=2)
        engine.add(request("r", [1, 2], params))
        answers = run(engine)
        return [answers[("r", index)].tokens for index in range(2)]

    alone, beside = answer_of(7, 0), answer_of(7, 3)
    assert alone == beside, "who else is there does not matter"
    assert alone[0] != alone[1]
    assert answer_of(8, 0) != alone
    assert answer_of(None, 0) == answer_of(None, 0), "runs repeat"
    assert answer_of(-1, 0) != answer_of(1, 0)


def test_logprobs_come_one_per_token() -> None:
    engine = make_engine(Sizes(overlap=1))
    engine.add(request("r", [1], GREEDY.with_(logprobs=1)))
    engine.add(request("s", [1]))
    while engine.has_work:
        for delta in engine.step():
            expected_scores = list(delta.tokens) if delta.id == "r" else []
            assert [score.token for score in delta.scores] == expected_scores


def test_a_prompt_that_the_caller_changes_afterwards() -> None:
    engine = make_engine(Sizes(max_tokens=2))
    new = request("r", [1, 2, 3, 4])
    engine.add(new)
    engine.step()
    assert isinstance(new.prompt, list)
    new.prompt[3] = 9
    assert run(engine)[("r", 0)].tokens == expected_answer([1, 2, 3, 4], 8)


def test_a_clock_that_jumps_while_a_preempted_request_is_in_flight() -> None:
    clock = ManualClock()
    engine = make_engine(Sizes(8, 2, max_seqs=4, max_model_len=16, overlap=2), clock=clock)
    crowd(engine)
    answers: Answers = {}
    parked: list[Any] = []
    while not parked:
        steps(engine, 1, answers)
        parked = [one for one in engine.lifecycle.gates.requests() if one.unseen]
    for number in range(4):
        if f"r{number}" != parked[0].id:
            engine.abort(f"r{number}")
    clock.advance(1e6)
    answers = run_on(engine, answers)
    assert answers[(parked[0].id, 0)].tokens == expected_answer(parked[0].prompt, 8)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_shape_of_one_sequence_cannot_lock_the_pool(length: int) -> None:
    """The older request runs behind the younger one in the order of admission, both need a block,
    and the shape lets only the younger one go on."""

    class OneAtATime:
        def shape(self, step: StepView) -> Shape:
            return Shape(seqs=1) if step.decodes == 2 else Shape()



    clock = ManualClock()
    sizes = Sizes(6, 2, max_seqs=4, max_model_len=12, share=0.0)


    halves = Halves(Halves.Config(), context_for(sizes, clock))
    engine = make_engine(
        sizes, disciplines=[halves], advisors={"one": OneAtATime()}, clock=clock
    )
    params = GREEDY.with_(max_tokens=12 - length)
    for name, tier in (("old", "second"), ("young", "first")):
        engine.add(request(name, [1] * length, params, context=RequestContext(tier=tier)))
    answers = run(engine, max_steps=1000)
    for name in ("old", "young"):
        assert answers[(name, 0)].tokens == expected_answer([1] * length, 12 - length)


def test_closing_ends_everybody() -> None:
    executor = FakeExecutor(4)
    engine = make_engine(executor=executor)
    engine.add(request("r", [1]))
    engine.step()
    held = engine._requests["r"][0]
    engine.close()
    assert executor.closed and held.status is Status.FINISHED and not held.blocks
