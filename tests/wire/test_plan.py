"""Plans as the ranks beside the first are told of them."""

from jackfield.core.api import SamplingParams
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan
from jackfield.core.kv.transfers import BlockCopy, Transfer, TransferKind
from jackfield.core.wire.plan import Plan, plan_message, plan_of, sample_message
from jackfield.core.wire.ranks import Copy, decode_order, encode_rank

PARAMS = SamplingParams(
    temperature=0.5, logit_bias={7: -1.5, 3: 2.0}, min_tokens=2, allowed_token_ids=[3, 7, 8]
)
DECODES = [Slice(2**40 + seat, seat, 100 + seat, 1, None, 1, False) for seat in range(3)]
PROMPTS = [
    Slice(5, 9, 0, 4, [11, 12, 13, 14], 0, True),
    Slice(6, 4, 16, 2, (21, 22), 1, False),
    Slice(7, 5, 7, 1, [31], 1, True),
]
JOIN = Join(9, 5, PARAMS, 2**62 + 1, [11, 12, 13, 14], (1, 2), frozenset({2, 9}), [4], True)


def through(plan: StepPlan) -> StepPlan:
    order = decode_order(encode_rank(plan_message(plan, waits=True)))
    assert isinstance(order, Plan) and order.waits
    return plan_of(order)


def bare(parts: list[Slice]) -> list[tuple[object, ...]]:
    return [(*part[1:4], part.tokens and list(part.tokens), *part[5:]) for part in parts]


def test_a_step_arrives_as_it_was() -> None:
    plan = StepPlan(
        77, [*DECODES, *PROMPTS], 3, [8, 9], [JOIN],
        [BlockUpdate(9, 0, [5, 6, 7]), BlockUpdate(4, 2, [1]), BlockUpdate(0, 3, [])],
        [BlockCopy(1, 2)],
    )  # fmt: skip
    found = through(plan)
    assert bare(found.slices) == bare(plan.slices)
    assert [part.handle for part in found.slices] == list(range(6))
    assert (found.number, found.num_decodes, found.num_tokens) == (77, 3, plan.num_tokens)
    assert (found.leaves, found.blocks, found.copies) == (plan.leaves, plan.blocks, plan.copies)
    (join,) = found.joins
    assert join._replace(handle=5) == JOIN._replace(output=[1, 2])
    assert list(join.params.logit_bias or {}) == [7, 3]


def test_decodes_alone_are_short() -> None:
    plan = StepPlan(1, [Slice(s, s, 900, 1, None, 1, False) for s in range(256)], 256)
    assert bare(through(plan).slices) == bare(plan.slices)
    assert len(encode_rank(plan_message(plan, waits=False))) < 2200


def test_what_is_known_late_is_told_by_place() -> None:
    plan = StepPlan(1, [*DECODES, *PROMPTS], 3)
    late = {6: [1, 2], 2**40 + 1: (9,), 999: [4]}
    assert sample_message(plan, late).late == {4: [1, 2], 1: [9]}


def test_transfers_arrive_as_they_were() -> None:
    orders = [
        Transfer(1, TransferKind.STORE, "host", 5, 6, checked=False),
        Transfer(2, TransferKind.SPILL, "disk", 5, 6, "host"),
    ]
    assert decode_order(encode_rank(Copy(orders))) == Copy(orders)
