"""Grants, refunds, seats and blocks: the planner's own invariants."""

import pytest

from jackfield.core.api import ReleaseCause, SamplingParams
from jackfield.core.engine.group import Group
from jackfield.core.engine.messages import DEFAULT_CONTEXT
from jackfield.core.engine.planner import Limits, Planner
from jackfield.core.engine.request import Request, Status
from jackfield.core.engine.reuse import reuse_of
from jackfield.core.testing.memory import make_memory


def make(handle: int, length: int, *, index: int = 0, scores: int | None = None) -> Request:
    params = SamplingParams(max_tokens=8, prompt_logprobs=scores)
    request = Request(
        handle, f"r{handle}", index, tuple(range(length)), params, DEFAULT_CONTEXT,
        arrival=0.0, seed=0, max_tokens=8, eos_ids=frozenset(),
    )  # fmt: skip
    request.move(Status.WAITING)
    return request


@pytest.fixture
def planner() -> Planner:
    limits = Limits(max_tokens=16, max_seqs=3, max_model_len=32)
    return Planner(*make_memory(8, 4), limits)


def start(planner: Planner, request: Request) -> None:
    """Admit and compute the whole prompt."""
    planner.admit(request)
    planner.grant(request, request.need)
    planner.commit()
    planner.settle(request, 1, [7])
    planner.check()


def test_an_admission_holds_the_blocks_of_all_known_tokens(planner: Planner) -> None:
    request = make(0, 9)
    planner.admit(request)
    assert len(request.blocks) == 3 and planner.seats_left == 2
    planner.grant(request, 5)
    plan, requests = planner.commit()
    assert plan is not None and requests == [request]
    part = plan.slices[0]
    assert (part.start, part.length, part.samples, list(part.tokens or ())) == (
        0, 5, 0, [0, 1, 2, 3, 4],
    )  # fmt: skip
    assert [update.blocks for update in plan.blocks] == [request.blocks]
    assert (request.computed, request.need) == (5, 4)


def test_progress_is_counted_when_the_step_is_sealed(planner: Planner) -> None:
    request = make(0, 4)
    planner.admit(request)
    planner.grant(request, 4)
    planner.commit()
    assert (request.computed, request.total, request.unseen) == (4, 5, 1)
    assert request.decodes
    planner.decode([request])
    plan, _ = planner.commit()
    assert plan is not None and plan.num_decodes == 1
    assert plan.slices[0].start == 4 and plan.slices[0].tokens is None
    assert len(request.blocks) == 2
    planner.settle(request, 1, [5])
    planner.settle(request, 1, [6])
    assert (request.output, request.unseen, request.total) == ([5, 6], 0, 6)


def test_tokens_that_were_not_taken_are_rewound(planner: Planner) -> None:
    request = make(0, 4)
    planner.admit(request)
    planner.grant(request, 4)
    planner.commit()
    planner.settle(request, 1, [])
    assert (request.computed, request.total, request.unseen) == (3, 4, 0)


def test_a_preempted_request_gets_its_grant_back_as_budget(planner: Planner) -> None:
    first, second = make(0, 4), make(1, 6)
    start(planner, first)
    planner.admit(second)
    planner.grant(second, 6)
    assert planner.tokens_left == 10
    planner.preempt(second)
    assert planner.tokens_left == 16 and planner.is_empty
    assert not second.blocks and second.seat < 0 and second.computed == 0
    assert planner.commit() == (None, [])
    second.move(Status.WAITING)
    planner.check()


def test_a_seat_that_is_left_and_taken_in_one_step(planner: Planner) -> None:
    first, second = make(0, 4), make(1, 4)
    start(planner, first)
    seat = first.seat
    planner.release(first, ReleaseCause.ABORTED)
    planner.admit(second)
    planner.grant(second, 4)
    plan, _ = planner.commit()
    assert plan is not None
    assert plan.leaves == [seat] and [join.seat for join in plan.joins] == [seat]


def test_a_seat_that_was_never_announced_is_not_left(planner: Planner) -> None:
    first, second = make(0, 4), make(1, 4)
    planner.admit(first)
    planner.release(first, ReleaseCause.ABORTED)
    planner.admit(second)
    planner.grant(second, 4)
    plan, _ = planner.commit()
    assert plan is not None
    assert plan.leaves == [] and [join.handle for join in plan.joins] == [1]
    assert all(update.blocks == second.blocks for update in plan.blocks)


def test_joins_of_an_empty_step_come_with_the_next(planner: Planner) -> None:
    request = make(0, 4)
    planner.admit(request)
    assert planner.commit() == (None, [])
    planner.grant(request, 4)
    plan, _ = planner.commit()
    assert plan is not None and plan.number == 0
    assert [join.handle for join in plan.joins] == [0] and len(plan.blocks) == 1


def test_the_oldest_and_those_without_progress_are_not_preemptible(planner: Planner) -> None:
    first, second, third = make(0, 2), make(1, 5), make(2, 2)
    for request in (first, second, third):
        start(planner, request)
    assert planner.oldest is first
    assert planner.preemptible() == [second, third]
    planner.preempt(second)
    second.move(Status.WAITING)
    planner.admit(second)
    assert planner.preemptible() == [third]
    planner.grant(second, 6)
    planner.commit()
    assert planner.preemptible() == [third], "six positions were there before"
    planner.settle(second, 1, [1])
    for _ in range(3):
        planner.decode([second])
        planner.commit()
        planner.settle(second, 1, [1])
    assert planner.preemptible() == [second, third]


def test_a_second_preemption_does_not_lower_the_mark(planner: Planner) -> None:
    first, second = make(0, 2), make(1, 8)
    start(planner, first)
    start(planner, second)
    planner.preempt(second)
    mark = second.progress_mark
    assert mark == 12
    second.move(Status.WAITING)
    planner.admit(second)
    planner.grant(second, 3)
    planner.commit()
    planner.preempt(second)
    assert second.progress_mark == mark


def test_answers_to_one_prompt_share_its_full_blocks(planner: Planner) -> None:
    leader, member = make(0, 10), make(1, 10, index=1)
    Group([leader, member])
    start(planner, leader)
    assert planner.cached_tokens(member) == 9
    assert planner.admission_blocks(member) == 1
    planner.admit(member)
    assert member.blocks[:2] == leader.blocks[:2] and member.blocks[2:] != leader.blocks[2:]
    assert member.computed == member.num_cached == 9
    assert planner.pool.num_free == 8 - 4
    planner.grant(member, 1)
    plan, _ = planner.commit()
    assert plan is not None and plan.copies == [(leader.blocks[2], member.blocks[2])]
    planner.release(leader, ReleaseCause.ABORTED)
    planner.check()
    assert planner.pool.num_free == 8 - 3


def test_a_prompt_of_whole_blocks_keeps_one_position_to_compute(planner: Planner) -> None:
    leader, member = make(0, 8), make(1, 8, index=1)
    Group([leader, member])
    start(planner, leader)
    reuse = reuse_of(member, planner.cache)
    expected = (leader.blocks[:1], leader.blocks[1], 7)
    assert (reuse.blocks, reuse.source, reuse.num_tokens) == expected


def test_who_collects_scores_of_the_prompt_computes_all_of_it(planner: Planner) -> None:
    leader, member = make(0, 10, scores=1), make(1, 10, index=1, scores=1)
    Group([leader, member])
    start(planner, member)
    assert planner.cached_tokens(leader) == 0
    leader.output.append(1)
    leader.total += 1
    reuse = reuse_of(leader, planner.cache)
    expected = (member.blocks[:2], member.blocks[2], 10)
    assert (reuse.blocks, reuse.source, reuse.num_tokens) == expected


def test_scores_of_the_prompt_are_asked_for_once(planner: Planner) -> None:
    first, second = make(0, 2), make(1, 4, scores=1)
    start(planner, first)
    for expected in (True, False):
        planner.admit(second)
        planner.grant(second, second.need)
        plan, _ = planner.commit()
        assert plan is not None and plan.slices[-1].scores is expected
        planner.settle(second, 1, [3])
        planner.preempt(second)
        second.move(Status.WAITING)


def test_an_illegal_move_is_a_fault_of_the_engine() -> None:
    request = make(0, 4)
    request.move(Status.FINISHED)
    with pytest.raises(AssertionError, match="r0"):
        request.move(Status.RUNNING)
