"""An executor without a model: it keeps tokens in blocks and reads them back through the tables.

A block that is shared, reused or overwritten wrongly, a position that is skipped or computed
twice in the wrong place, shows as a wrong answer. So does a block that is copied too late, or read
before its transfer has ended, where it is not refused at once.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jackfield.core.engine.steps import Join, Late, Slice, StepPlan, StepResult, TokenScore
from jackfield.core.kv.transfers import BlockCopy, Transfer, TransferEnd
from jackfield.core.testing.fake_memory import FakeMemory, tokens_of
from jackfield.core.testing.fake_tiers import FakeTiers

NextToken = Callable[[Sequence[int], Join], int]


def hashed(prefix: Sequence[int], seed: int, vocab_size: int) -> int:
    """The next token as a hash of all tokens before it."""
    text = f"{seed}:{','.join(map(str, prefix))}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest()) % vocab_size


@dataclass(slots=True)
class Seat:
    """What a device would keep per seat. end: positions that were computed; None = none yet."""

    join: Join
    table: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    end: int | None = None


@dataclass(slots=True)
class Ticket:
    """A step whose positions are written and whose tokens are not drawn yet."""

    plan: StepPlan
    prefixes: list[list[int] | None]
    result: StepResult | None = None


class FakeExecutor:
    """Runs plans on a dictionary. `next_token` decides what is sampled; default: a hash.

    tiers: run the transfers, and share their memory; default: every transfer ends at once.
    """

    def __init__(
        self,
        block_size: int,
        vocab_size: int = 1000,
        next_token: NextToken | None = None,
        tiers: FakeTiers | None = None,
    ) -> None:
        self.tiers = tiers or FakeTiers(FakeMemory(block_size))
        self.memory = self.tiers.memory
        assert self.memory.block_size == block_size, "the tiers have blocks of another size"
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._next_token = next_token or self._hash
        self._seats: dict[int, Seat] = {}
        self._num_tables: Counter[int] = Counter()
        self._next_step = 0
        self.last_plan: StepPlan | None = None
        self.closed = False
        self.default_overlap = 0

    def _hash(self, prefix: Sequence[int], join: Join) -> int:
        seed = 0 if join.params.greedy else join.seed
        return hashed(prefix, seed, self._vocab_size)

    @property
    def seats(self) -> Mapping[int, Seat]:
        """All seats that are taken. A seat is left only when a plan says so."""
        return self._seats

    def forward(self, plan: StepPlan) -> Ticket:
        """Make the copies, then write the tokens of all slices into their blocks."""
        assert plan.number >= self._next_step, "steps come in order"
        self._next_step = plan.number + 1
        self.last_plan = plan
        self._seat(plan)
        seats = [part.seat for part in plan.slices]
        assert len(set(seats)) == len(seats), "a sequence has two slices"
        feeding = [part.tokens is None for part in plan.slices]
        assert feeding == sorted(feeding, reverse=True), "slices that feed come first"
        assert sum(feeding) == plan.num_decodes, "num_decodes counts other slices"
        self._copy(plan.copies)
        return Ticket(plan, [self._write(part) for part in plan.slices])

    def _seat(self, plan: StepPlan) -> None:
        for seat in plan.leaves:
            self._num_tables.subtract(self._seats.pop(seat).table)
        for join in plan.joins:
            assert join.seat not in self._seats, "a taken seat is joined"
            self._seats[join.seat] = Seat(join)
        for update in plan.blocks:
            table = self._seats[update.seat].table
            assert len(table) == update.first, "a block table has a gap"
            table.extend(update.blocks)
            self._num_tables.update(update.blocks)

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        """One after another; a device that makes them all at once must come to the same."""
        targets: set[int] = set()
        for source, target in copies:
            who = f"the copy of block {source} to block {target}"
            assert source != target, f"{who} does nothing"
            assert source not in targets, f"{who} depends on a copy of the same step"
            assert target not in targets, f"{who} is the second one to that block"
            assert self._num_tables[target] <= 1, f"{who} overwrites what several tables hold"
            self.tiers.check_read(source, who)
            self.tiers.check_write(target, who)
            self.memory.put(target, self.memory.get(source))
            targets.add(target)

    def _write(self, part: Slice) -> list[int] | None:
        seat = self._seats[part.seat]
        assert seat.join.handle == part.handle, "a slice runs on somebody else's seat"
        tokens = seat.sampled[-1:] if part.tokens is None else part.tokens
        assert tokens or not part.length, "a slice feeds on a token that was never sampled"
        assert len(tokens) == part.length, "a slice has more or fewer tokens than positions"
        assert seat.end in (None, part.start), "positions are not contiguous"
        seat.end = part.start + part.length
        self._check_blocks(seat, part)
        before = self.memory.read(seat.table, part.start)
        last = self.memory.write(seat.table, part.start, tokens, before)
        return tokens_of(last) if part.samples else None

    def _check_blocks(self, seat: Seat, part: Slice) -> None:
        """A slice reads the blocks of all positions before its end, and writes the last ones."""
        who = f"the slice of {part.handle}"
        first = part.start // self._block_size
        end = -(-(part.start + part.length) // self._block_size)
        assert end <= len(seat.table), f"{who} needs {end} blocks and has {len(seat.table)}"
        for block in seat.table[:end]:
            self.tiers.check_read(block, who)
        for block in seat.table[first:end]:
            self.tiers.check_write(block, who)
            assert self._num_tables[block] == 1, f"{who} writes block {block} of several tables"

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
                seat.sampled.append(token)
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

    def transfer(self, orders: Sequence[Transfer]) -> None:
        """Hand the orders to the tiers."""
        self.tiers.transfer(orders)

    def transferred(self) -> Sequence[TransferEnd]:
        """What has ended since the last call."""
        return self.tiers.transferred()

    def await_transfer(self, seconds: float) -> None:
        """Let something end. Never sleeps."""
        self.tiers.await_transfer(seconds)

    def cancel_transfers(self, numbers: Sequence[int]) -> Sequence[int]:
        """Give up those that have not run yet."""
        return self.tiers.cancel_transfers(numbers)

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
