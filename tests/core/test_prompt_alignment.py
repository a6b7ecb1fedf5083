"""Where the step cuts prompts, its parts end at positions that suit the kernel."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield import LLM, SamplingParams
from jackfield.core.api import (
    KvLayout,
    PlanBuilder,
    PluginContractError,
    Quota,
    QuotaView,
    Shape,
    StepView,
)
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.reasons import Code
from jackfield.core.executors.prompt_alignment import prompt_alignment
from jackfield.core.testing.conserving import Conserving
from jackfield.core.testing.engines import VOCAB, Sizes, make_engine, request
from jackfield.core.testing.examples import settings_for
from jackfield.core.testing.fake_executor import FakeExecutor
from jackfield.core.testing.lives import TIGHT, life
from jackfield.core.testing.memory import CacheKit
from jackfield.plugins.cache.prefix import Prefix
from jackfield.plugins.kernels.torch_ops.attention import TorchAttention

FOLDER = Path(__file__).parent.parent / "data" / "tiny_qwen3"
ROOMY = Sizes(
    num_blocks=400, block_size=4, max_tokens=100, max_seqs=8, max_model_len=1000,
    prompt_alignment=16,
)  # fmt: skip
ONE = SamplingParams(temperature=0, max_tokens=1)
Chunk = tuple[int, int]


class Quotas:
    """The hook, with an answer for every step: name of a request -> its limit."""

    def __init__(self, *limits: Mapping[str, int]) -> None:
        self._limits = list(limits)

    def shape(self, step: StepView) -> Shape:
        self._now = self._limits.pop(0) if self._limits else {}
        return Shape()

    def quota(self, plan: QuotaView) -> Quota:
        views = [one.request for one in plan.prefills]
        return {view.handle: self._now[view.id] for view in views if view.id in self._now}


class Shapes:
    """The hook, with one answer."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def shape(self, step: StepView) -> Shape:
        return self._shape


class Runs:
    """An engine whose steps are looked at: start and length of each request's chunks."""

    def __init__(self, sizes: Sizes, **more: Any) -> None:
        self._executor = FakeExecutor(sizes.block_size)
        self.engine: Engine = make_engine(sizes, executor=self._executor, **more)
        self._names: list[str] = []

    def add(self, name: str, length: int, first: int = 0, params: SamplingParams = ONE) -> None:
        self._names.append(name)
        self.engine.add(request(name, _tokens(first, length), params))

    def step(self) -> dict[str, Chunk]:
        self.engine.step()
        self.engine.check()
        plan = self._executor.last_plan
        assert plan is not None
        parts = plan.slices[plan.num_decodes :]
        return {self._names[part.handle]: (part.start, part.length) for part in parts}

    def all(self, name: str) -> list[Chunk]:
        found = []
        while self.engine.has_work:
            chunk = self.step().get(name)
            found += [chunk] if chunk else []
        return found

    def why(self, name: str) -> list[str]:
        return [decision.code for decision in self.engine.explain(name)]


def _tokens(first: int, count: int) -> list[int]:
    return [token % VOCAB for token in range(first, first + count)]


def test_parts_of_a_prompt_end_at_multiples() -> None:
    runs = Runs(ROOMY)
    runs.add("long", 250)
    assert runs.all("long") == [(0, 96), (96, 96), (192, 58)]


def test_without_a_wish_of_the_kernel_steps_are_full() -> None:
    runs = Runs(replace(ROOMY, prompt_alignment=1))
    runs.add("long", 250)
    assert runs.all("long") == [(0, 100), (100, 100), (200, 50)]


def test_decodes_take_from_what_the_place_leaves() -> None:
    runs = Runs(ROOMY)
    for number in range(3):
        runs.add(f"short{number}", 2, params=ONE.with_(max_tokens=9, ignore_eos=True))
    runs.step()
    runs.add("long", 400)
    assert runs.all("long") == [(0, 96), (96, 96), (192, 96), (288, 96), (384, 16)]


def test_a_part_that_begins_elsewhere_ends_at_a_multiple() -> None:
    runs = Runs(replace(ROOMY, prompt_alignment=8))
    runs.add("first", 89)
    runs.add("second", 300)
    assert runs.step() == {"first": (0, 89), "second": (0, 8)}
    assert runs.all("second") == [(8, 96), (104, 96), (200, 100)]


def test_a_short_prompt_takes_all_of_a_rest() -> None:
    runs = Runs(ROOMY)
    runs.add("first", 89)
    runs.add("second", 63)
    assert runs.step() == {"first": (0, 89), "second": (0, 11)}
    assert runs.all("second") == [(11, 52)]


def test_a_long_prompt_does_not_take_a_rest_below_the_alignment() -> None:
    runs = Runs(ROOMY)
    runs.add("first", 90)
    runs.add("second", 64)
    runs.add("third", 7)
    assert runs.step() == {"first": (0, 90)}
    assert runs.why("second")[-1] == Code.STEP_FULL
    assert runs.step() == {"second": (0, 64), "third": (0, 7)}


@pytest.mark.parametrize(
    ("budget", "alignment", "length"),
    [(8, 1000, 8), (16, 15, 15), (16, 14, 14), (16, 13, 16), (15, 13, 15), (255, 256, 255),
     (8185, 256, 7936), (2040, 256, 1792), (2047, 256, 1792), (2049, 256, 2048)],
)  # fmt: skip
def test_it_may_cost_an_eighth(budget: int, alignment: int, length: int) -> None:
    sizes = Sizes(3000, 4, budget, 1, 10_000, prompt_alignment=alignment)
    runs = Runs(sizes)
    runs.add("long", 9000)
    assert runs.step() == {"long": (0, length)}


def test_tiny_steps_get_a_prompt_through() -> None:
    runs = Runs(replace(ROOMY, max_tokens=1, max_seqs=1))
    runs.add("long", 40)
    assert runs.all("long") == [(position, 1) for position in range(40)]


def test_what_a_policy_says_of_a_prompt_is_kept() -> None:
    quotas = Quotas({"long": 37}, {"long": 99}, {"long": 100}, {"long": 1000})
    runs = Runs(ROOMY, advisors={"quotas": quotas})
    runs.add("long", 600)
    assert [runs.step()["long"] for _ in range(3)] == [(0, 37), (37, 99), (136, 100)]
    assert runs.step() == {"long": (236, 100)}, "84 of 100 would be too little"
    assert runs.step() == {"long": (336, 96)}


def test_a_smaller_step_is_like_a_small_budget() -> None:
    for shape in (Shape(prefill_tokens=50), Shape(tokens=50)):
        runs = Runs(ROOMY, advisors={"shapes": Shapes(shape)})
        runs.add("long", 120)
        assert runs.all("long") == [(0, 48), (48, 48), (96, 24)]


def test_a_plan_by_hand_is_kept() -> None:
    class Plans:
        def plan(self, step: StepView, planner: PlanBuilder) -> None:
            for view in planner.waiting:
                planner.admit(view.handle)
            for view in planner.running:
                planner.grant(view.handle, min(planner.need(view.handle), planner.tokens_left))

    runs = Runs(ROOMY, advisors={"plans": Plans()})
    runs.add("long", 120)
    assert runs.all("long") == [(0, 100), (100, 20)]


def test_what_is_left_is_for_those_who_need_no_more() -> None:
    runs = Runs(ROOMY)
    runs.add("long", 250)
    for name, length in (("three", 3), ("two", 2), ("one", 1)):
        runs.add(name, length)
    assert runs.step() == {"long": (0, 96), "three": (0, 3)}
    assert runs.why("two")[-1] == Code.STEP_FULL, "and nobody passes it"
    assert runs.step() == {"long": (96, 96), "two": (0, 2), "one": (0, 1)}


def test_a_long_prompt_does_not_begin_with_what_is_left() -> None:
    runs = Runs(ROOMY)
    runs.add("long", 250)
    runs.add("next", 200)
    assert [runs.step() for _ in range(2)] == [{"long": (0, 96)}, {"long": (96, 96)}]
    assert runs.why("next")[-1] == Code.STEP_FULL
    assert runs.step() == {"long": (192, 58), "next": (0, 32)}
    assert runs.all("next") == [(32, 96), (128, 72)]


def test_who_runs_gets_no_sliver_either() -> None:
    runs = Runs(ROOMY, advisors={"quotas": Quotas({}, {"first": 50})})
    runs.add("first", 396)
    assert runs.step() == {"first": (0, 96)}
    runs.add("second", 300)
    assert runs.step() == {"first": (96, 50), "second": (0, 48)}
    assert runs.step() == {"first": (146, 94)}
    assert runs.step() == {"first": (240, 96)}
    assert runs.step() == {"first": (336, 60), "second": (48, 32)}


def test_a_quota_within_what_is_left_is_kept() -> None:
    runs = Runs(ROOMY, advisors={"quotas": Quotas({}, {"first": 50}, {"second": 4})})
    runs.add("first", 396)
    runs.step()
    runs.add("second", 300)
    runs.step()
    assert runs.step() == {"first": (146, 94), "second": (48, 4)}


def test_what_is_cached_counts_for_nothing() -> None:
    """A prompt that was computed before needs one position, however long it is."""
    runs = Runs(ROOMY, cache=CacheKit([Prefix(Prefix.Config())]))
    runs.add("early", 90)
    runs.all("early")
    runs.add("long", 250, first=500)
    runs.add("again", 90)
    assert runs.step() == {"long": (0, 96), "again": (88, 2)}


def test_a_smaller_step_after_a_shortage_keeps_the_places() -> None:
    runs = Runs(ROOMY)
    runs.engine.lifecycle.planner.shrink()
    runs.add("long", 120)
    assert runs.all("long") == [(0, 48), (48, 48), (96, 24)]


@pytest.mark.parametrize("overlap", [0, 1, 2])
@pytest.mark.parametrize("alignment", [2, 3, 5])
def test_the_laws_hold_in_a_long_life(overlap: int, alignment: int) -> None:
    sizes = replace(TIGHT, max_tokens=17, overlap=overlap, prompt_alignment=alignment)
    watch = life(
        lambda _: [], sizes, steps=150,
        prepare=lambda watch: None if overlap else watch.inspectors.append(Conserving()),
    )  # fmt: skip
    assert watch.engine.metrics.preemptions > 0


@settings_for(150)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=6),
    budget=st.integers(4, 120),
    alignment=st.integers(1, 64),
    answers=st.lists(st.integers(1, 12), min_size=6, max_size=6),
    overlap=st.integers(0, 2),
)
def test_every_part_ends_well_or_is_too_short(
    lengths: list[int], budget: int, alignment: int, answers: list[int], overlap: int
) -> None:
    sizes = Sizes(500, 4, budget, 4, 300, overlap, prompt_alignment=alignment)
    executor = FakeExecutor(sizes.block_size)
    engine = make_engine(sizes, executor=executor)
    for number, (length, count) in enumerate(zip(lengths, answers, strict=False)):
        params = ONE.with_(max_tokens=count, ignore_eos=True)
        engine.add(request(f"r{number}", range(length), params))
    done = [0] * len(lengths)
    last = None
    while engine.has_work:
        engine.step()
        plan = executor.last_plan
        if plan is None or plan is last:
            continue
        last = plan
        assert plan.num_tokens <= budget
        parts = plan.slices[plan.num_decodes :]
        for part in parts:
            assert part.start == done[part.handle], "without a gap"
            assert part.length > 0
            done[part.handle] = end = part.start + part.length
            beyond = end % alignment
            if end < lengths[part.handle]:
                assert not beyond or 8 * (part.length - beyond) < 7 * part.length
        cut = [part for part in parts if done[part.handle] < lengths[part.handle]]
        assert len(cut) <= 1, "one is cut, those behind it end"
        assert not cut or budget - plan.num_tokens < alignment
    assert done == lengths


def test_all_groups_get_what_suits_them() -> None:
    assert prompt_alignment("fast", []) == 1
    assert prompt_alignment("fast", [KvLayout(())]) == 1
    layouts = [KvLayout((), prompt_alignment=wish) for wish in (256, 1, 96)]
    assert prompt_alignment("fast", layouts) == 768


@pytest.mark.parametrize("wish", [0, -256, 1.5, True, None])
def test_it_is_a_number_of_positions(wish: Any) -> None:
    with pytest.raises(PluginContractError, match="kernel plugin fast: the prompt_alignment of"):
        prompt_alignment("fast", [KvLayout((), prompt_alignment=wish)])


@pytest.mark.parametrize("wish", [1, 16])
def test_the_kernel_is_heard(wish: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = TorchAttention.layout
    monkeypatch.setattr(
        TorchAttention, "layout", lambda *given: layout(*given)._replace(prompt_alignment=wish)
    )
    options: dict[str, Any] = {
        "load_format": "dummy", "skip_tokenizer_init": True, "kernel.stack": ["torch"],
    }  # fmt: skip
    with LLM(
        FOLDER, dtype="float32", device="cpu", max_model_len=128, max_num_seqs=2, **options,
    ) as llm:  # fmt: skip
        assert llm.assembly.loaded.limits.prompt_alignment == wish
        assert llm.assembly.engine.lifecycle.planner.limits.prompt_alignment == wish
