"""A step as the ranks beside the first are told of it: a few short arrays in place of objects.

They need what a `Runner` reads. A slice's handle is its place in the plan there.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from msgspec import Struct

from jackfield.core.api import SamplingParams
from jackfield.core.engine.steps import BlockUpdate, Join, Late, Slice, StepPlan
from jackfield.core.kv.transfers import BlockCopy
from jackfield.core.wire.codec import given_params

INT32 = "i"
assert array(INT32).itemsize == 4


class Seated(Struct, array_like=True, gc=False):
    """A `Join`. params: the fields that are not the default. prompt, output: as int32."""

    seat: int
    params: dict[str, Any]
    seed: int
    prompt: bytes
    output: bytes
    stop_ids: list[int]
    banned: list[int]
    binds_late: bool


class Plan(Struct, tag="plan", array_like=True, gc=False):
    """A `StepPlan`. waits: a `Sample` follows; without it tokens are drawn at once.

    Columns are of int32. seats, starts: of all slices. Of those that do not feed on the device's
    last token, the others say: lengths, samples, scores, and tokens of all of them one after
    another. blocks: seat, first and count of each update; ids: the blocks of all of them.
    """

    number: int
    num_decodes: int
    waits: bool
    seats: bytes
    starts: bytes
    lengths: bytes
    samples: bytes
    scores: bytes
    tokens: bytes
    leaves: list[int]
    blocks: bytes
    ids: bytes
    joins: list[Seated]
    copies: list[BlockCopy]


class Sample(Struct, tag="sample", array_like=True):
    """Draw the step's tokens now. late: by the place of the slice."""

    late: dict[int, list[int]]


def plan_message(plan: StepPlan, *, waits: bool) -> Plan:
    """Slices that feed on the device's last token have one position and draw one token."""
    _, seats, starts, lengths, tokens, samples, scores = zip(*plan.slices, strict=True)
    decodes = plan.num_decodes
    return Plan(
        plan.number,
        decodes,
        waits,
        packed(seats),
        packed(starts),
        packed(lengths[decodes:]),
        packed(samples[decodes:]),
        bytes(scores[decodes:]),
        packed(chain.from_iterable(part or () for part in tokens[decodes:])),
        plan.leaves,
        packed(chain.from_iterable((b.seat, b.first, len(b.blocks)) for b in plan.blocks)),
        packed(chain.from_iterable(b.blocks for b in plan.blocks)),
        [_seated(join) for join in plan.joins],
        plan.copies,
    )


def sample_message(plan: StepPlan, late: Late) -> Sample:
    """Only what concerns a slice of the step."""
    handles = (part.handle for part in plan.slices)
    return Sample({at: list(late[one]) for at, one in enumerate(handles) if one in late})


def _seated(join: Join) -> Seated:
    return Seated(
        join.seat,
        given_params(join.params),
        join.seed,
        packed(join.prompt),
        packed(join.output),
        list(join.stop_ids),
        list(join.banned),
        join.binds_late,
    )


def plan_of(message: Plan) -> StepPlan:
    """What a `Runner` takes."""
    return StepPlan(
        message.number,
        _slices(message),
        message.num_decodes,
        message.leaves,
        [_join(seated) for seated in message.joins],
        _updates(message.blocks, message.ids),
        message.copies,
    )


def _slices(message: Plan) -> list[Slice]:
    seats, starts = unpacked(message.seats), unpacked(message.starts)
    decodes = message.num_decodes
    one, no_tokens, no_scores = repeat(1), repeat(None), repeat(False)
    places, told = range(decodes), (seats[:decodes], starts[:decodes])
    columns = (places, *told, one, no_tokens, one, no_scores)
    # A third of the time that the constructor takes, since nothing of it is Python's.
    found = list(map(tuple.__new__, repeat(Slice), zip(*columns, strict=False)))
    if decodes == len(seats):
        return found
    lengths, samples = unpacked(message.lengths), unpacked(message.samples)
    tokens, begin = unpacked(message.tokens), 0
    for index, (length, draws) in enumerate(zip(lengths, samples, strict=True)):
        place, end = decodes + index, begin + length
        known, scores = tokens[begin:end], bool(message.scores[index])
        found.append(Slice(place, seats[place], starts[place], length, known, draws, scores))
        begin = end
    return found


def _updates(blocks: bytes, ids: bytes) -> list[BlockUpdate]:
    found, begin = [], 0
    told, every = unpacked(blocks), unpacked(ids)
    for seat, first, count in zip(told[::3], told[1::3], told[2::3], strict=True):
        found.append(BlockUpdate(seat, first, every[begin : begin + count]))
        begin += count
    return found


def _join(seated: Seated) -> Join:
    return Join(
        seated.seat,
        seated.seat,
        SamplingParams(**seated.params),
        seated.seed,
        unpacked(seated.prompt),
        unpacked(seated.output),
        frozenset(seated.stop_ids),
        seated.banned,
        seated.binds_late,
    )


def packed(values: Iterable[int]) -> bytes:
    """As int32."""
    return array(INT32, values).tobytes()


def unpacked(data: bytes) -> Sequence[int]:
    """What was packed."""
    found = array(INT32)
    found.frombytes(data)
    return found.tolist()
