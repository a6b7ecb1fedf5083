"""An executor without a model: it keeps tokens in blocks and reads them back through the tables.

A block that is shared, reused or overwritten wrongly, a position that is skipped or computed
twice in the wrong place, shows as a wrong answer.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jackfield.core.engine.steps import Join, Late, Slice, StepPlan, StepResult, TokenScore

NextToken = Callable[[Sequence[int], Join], int]


def hashed(prefix: Sequence[int], seed: int, vocab_size: int) -> int:
    """The next token as a hash of all tokens before it."""
    text = f"{seed}:{','.join(map(str, prefix))}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest()) % vocab_size


@dataclass(slots=True)
class Seat:
    """What a device would keep per seat."""

    join: Join
    table: list[int] = field(default_factory=list)
    last_token: int | None = None
    end: int | None = None


@dataclass(slots=True)
class Ticket:
    """A step whose positions are written and whose tokens are not drawn yet."""

    plan: StepPlan
    prefixes: list[list[int] | None]
    result: StepResult | None = None


class FakeExecutor:
    """Runs plans on a dictionary. `next_token` decides what is sampled; default: a hash."""

    def __init__(
        self, block_size: int, vocab_size: int = 1000, next_token: NextToken | None = None
    ) -> None:
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._next_token = next_token or self._hash
        self._seats: dict[int, Seat] = {}
        self._written: dict[tuple[int, int], int] = {}
        self._next_step = 0
        self.last_plan: StepPlan | None = None
        self.closed = False
        self.default_overlap = 0

    def _hash(self, prefix: Sequence[int], join: Join) -> int:
        seed = 0 if join.params.greedy else join.seed
        return hashed(prefix, seed, self._vocab_size)

    def forward(self, plan: StepPlan) -> Ticket:
        """Write the tokens of all slices into their blocks."""
        assert plan.number >= self._next_step, "steps come in order"
        self._next_step = plan.number + 1
        self.last_plan = plan
        self._seat(plan)
        seats = [part.seat for part in plan.slices]
        assert len(set(seats)) == len(seats), "a sequence has two slices"
        feeding = [part.tokens is None for part in plan.slices]
        assert feeding == sorted(feeding, reverse=True), "slices that feed come first"
        assert sum(feeding) == plan.num_decodes
        return Ticket(plan, [self._write(part) for part in plan.slices])

    def _seat(self, plan: StepPlan) -> None:
        for seat in plan.leaves:
            del self._seats[seat]
        for join in plan.joins:
            assert join.seat not in self._seats, "a taken seat is joined"
            self._seats[join.seat] = Seat(join)
        for update in plan.blocks:
            table = self._seats[update.seat].table
            assert len(table) == update.first, "a block table has a gap"
            table.extend(update.blocks)

    def _write(self, part: Slice) -> list[int] | None:
        seat = self._seats[part.seat]
        assert seat.join.handle == part.handle, "a slice runs on somebody else's seat"
        tokens = [seat.last_token] if part.tokens is None else part.tokens
        assert len(tokens) == part.length
        first = seat.end is None and part.start % self._block_size == 0
        assert first or part.start == seat.end, "positions are not contiguous"
        seat.end = part.start + part.length
        for offset, token in enumerate(tokens):
            assert token is not None, "a slice feeds on a token that was never sampled"
            self._written[self._slot(seat, part.start + offset)] = token
        end = part.start + part.length
        return self._prefix(seat, end) if part.samples else None

    def _slot(self, seat: Seat, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_size)
        return seat.table[block], offset

    def _prefix(self, seat: Seat, length: int) -> list[int]:
        return [self._written[self._slot(seat, position)] for position in range(length)]

    def sample(self, ticket: Ticket, late: Late) -> None:
        """Draw one token per slice that samples."""
        result = StepResult([], [])
        for part, prefix in zip(ticket.plan.slices, ticket.prefixes, strict=True):
            result.counts.append(part.samples)
            if part.scores:
                scores = _prompt_scores(part, self._seats[part.seat].join.prompt)
                result.prompt_scores = {**result.prompt_scores, part.handle: scores}
            if prefix is not None:
                seat = self._seats[part.seat]
                token = self._draw(prefix, seat.join, late.get(part.handle, ()))
                seat.last_token = token
                if seat.join.params.logprobs is not None:
                    result_scores = dict(result.scores)
                    result_scores[len(result.tokens)] = TokenScore(token, -1.0, 1, [(token, -1.0)])
                    result.scores = result_scores
                result.tokens.append(token)
        ticket.result = result

    def _draw(self, prefix: Sequence[int], join: Join, banned: Sequence[int]) -> int:
        token = self._next_token(prefix, join)
        while token in banned or token in join.banned:
            token = (token + 1) % self._vocab_size
        return token

    def collect(self, ticket: Ticket) -> StepResult:
        """The tokens of the step."""
        assert ticket.result is not None, "a step is collected before it was sampled"
        return ticket.result

    def close(self) -> None:
        """Nothing is held."""
        self.closed = True


def _prompt_scores(part: Slice, prompt: Sequence[int]) -> dict[int, TokenScore]:
    """The position before scores a token; the first token of a prompt has no score."""
    end = min(part.start + part.length, len(prompt) - 1)
    return {
        position + 1: TokenScore(prompt[position + 1], -1.0, 1, [(prompt[position + 1], -1.0)])
        for position in range(part.start, end)
    }
