"""A random life of an engine under given policies: arrivals, aborts, jumps of the clock, steps.

Pools are tiny, so that every limit is met often. See `Watch` for the laws.
"""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from jackfield.core.api import (
    ContextLengthExceeded,
    NeverFits,
    RequestContext,
    RequestError,
    SamplingParams,
)
from jackfield.core.engine.messages import NewRequest
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.examples import settings_for
from jackfield.core.testing.lives import EOS, IDS, TENANTS, Advisors, start
from jackfield.core.testing.stacks import Factory

PREFIXES = ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4, 9, 9), (5,), tuple(range(12)) * 2)
token = st.integers(0, IDS - 1)
sizes = st.builds(
    Sizes,
    num_blocks=st.integers(6, 24),
    block_size=st.integers(2, 4),
    max_tokens=st.integers(4, 16),
    max_seqs=st.integers(1, 5),
    max_model_len=st.sampled_from([24, 64]),
    share=st.sampled_from([0.0, 0.01, 0.3]),
)
prompts = st.builds(
    lambda prefix, length, suffix: [*prefix[:length], *suffix] or [0],
    st.sampled_from(PREFIXES),
    st.integers(0, 24),
    st.lists(token, max_size=6),
)
contexts = st.builds(
    RequestContext,
    tenant=st.sampled_from(TENANTS),
    priority=st.integers(-2, 2),
    deadline=st.none() | st.floats(0, 100),
)
words = st.lists(st.lists(token, min_size=1, max_size=3), max_size=2)


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    """Parameters of all kinds, in a consistent combination."""
    most = draw(st.none() | st.integers(0, 12))
    return SamplingParams(
        n=draw(st.sampled_from([1, 1, 2, 3])),
        temperature=draw(st.sampled_from([0.0, 1.0])),
        seed=draw(st.none() | st.integers(0, 9)),
        max_tokens=most,
        min_tokens=draw(st.integers(0, min(3, most if most is not None else 3))),
        stop_token_ids=draw(st.none() | st.lists(token, max_size=2)),
        ignore_eos=draw(st.booleans()),
        prompt_logprobs=draw(st.sampled_from([None, None, 1])),
    )


def scheduler_machine(
    make_policies: Factory,
    make_advisors: Advisors | None = None,
    overlap: int = 0,
) -> type[RuleBasedStateMachine]:
    """A state machine on the real engine with these policies.

    make_policies: a context -> the stack, from the root on; advisors may be among them.
    make_advisors: a context -> further advisors by name. overlap: steps in flight while the next
    one is planned.
    """

    class Machine(RuleBasedStateMachine):
        @initialize(size=sizes)
        def begin(self, size: Sizes) -> None:
            size = replace(size, overlap=overlap)
            self.size, self.clock, self.count = size, ManualClock(), 0
            self.watch = start(make_policies, size, self.clock, make_advisors)

        @rule(prompt=prompts, asked=params(), context=contexts, banned=words)
        def arrive(
            self,
            prompt: list[int],
            asked: SamplingParams,
            context: RequestContext,
            banned: list[list[int]],
        ) -> None:
            self.count += 1
            new = NewRequest(f"r{self.count}", prompt, asked, context, banned)
            refusal = _refusal(new, self.size)
            if refusal is None:
                self.watch.add(new, EOS)
                return
            try:
                self.watch.engine.add(new)
            except RequestError as error:
                kind, *numbers = refusal
                assert isinstance(error, kind), f"refused as {type(error).__name__}"
                assert all(str(number) in str(error) for number in numbers), str(error)
                return
            raise AssertionError("a request that can never be served was accepted")

        @rule(steps=st.integers(1, 6))
        def step(self, steps: int) -> None:
            for _ in range(steps):
                self.watch.step()

        @rule(back=st.integers(0, 5), index=st.sampled_from([None, None, 0, 1, 2]))
        def abort(self, back: int, index: int | None) -> None:
            self.watch.abort(f"r{self.count - back}", index)

        @rule(seconds=st.sampled_from([0.0, 0.001, 0.5, 20.0, 1e6]))
        def advance_clock(self, seconds: float) -> None:
            self.clock.advance(seconds)

        @rule()
        def drain(self) -> None:
            self.watch.drain()

        def teardown(self) -> None:
            if hasattr(self, "watch"):
                self.watch.drain()

    return Machine


def _refusal(new: NewRequest, size: Sizes) -> tuple[Any, ...] | None:
    """The error and the numbers that it must name; None if the request can be served."""
    length, asked, context = len(new.prompt), new.params, size.max_model_len
    if length > context or (length == context and asked.max_tokens != 0):
        return ContextLengthExceeded, length, context
    room = context - length
    most = min(room, size.num_blocks * size.block_size - length)
    wanted = most if asked.max_tokens is None else min(asked.max_tokens, room)
    needed = -(-(length + max(wanted, 1)) // size.block_size)
    if needed > size.num_blocks:
        return NeverFits, needed, size.num_blocks
    if asked.min_tokens > wanted:
        return RequestError, asked.min_tokens, wanted
    return None


def run_machine(
    machine: type[RuleBasedStateMachine], examples: int = 25, steps: int = 40
) -> None:
    """Run a machine as a test, so many lives of so many steps. See `settings_for`."""
    run_state_machine_as_test(machine, settings=settings_for(examples, stateful_step_count=steps))
