"""Messages come out of their bytes as they went in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.api import (
    CacheHints,
    ContextLengthExceeded,
    EngineStoppedError,
    FinishReason,
    JackfieldError,
    NeverFits,
    RequestContext,
    RequestError,
    RequestRejected,
    SamplingParams,
    Trust,
    errors,
)
from jackfield.core.engine.decisions import Action, Decision
from jackfield.core.engine.listing import Query, RequestPage, RequestRow
from jackfield.core.engine.messages import Delta, NewRequest, Rejection
from jackfield.core.engine.snapshot import Quantiles, Snapshot
from jackfield.core.engine.steps import TokenScore
from jackfield.core.engine.timings import Timings
from jackfield.core.histogram import HistogramCounts
from jackfield.core.host.fingerprint import Identity
from jackfield.core.host.origin import Layer, Origin
from jackfield.core.kv.cache_snapshot import CacheSnapshot, TierSnapshot
from jackfield.core.wire.codec import (
    decode_command,
    decode_news,
    deltas_of,
    encode,
    encode_deltas,
    encode_request,
    error_of,
    failure,
    refusal,
    request_of,
)
from jackfield.core.wire.messages import (
    Abort,
    Add,
    Advanced,
    Ask,
    Command,
    Deltas,
    Died,
    Explain,
    Explained,
    Failed,
    Heartbeat,
    Hello,
    Limits,
    Listed,
    News,
    Refused,
    Reset,
    Shutdown,
    Start,
    WasReset,
    Worked,
    Working,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=8)
REAL = st.floats(allow_nan=False, allow_infinity=False)
SNAPSHOT = Snapshot(
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, {"y": 1}, {"admit": {"fcfs": 2}}, 3,
    {"x": 1}, {"stop": 1}, {}, {"x": 2}, Quantiles(0.1, 0.2, 0.3), Quantiles(),
    {"step_tokens": HistogramCounts([1, 2.5], [3, 4, 5], 6.5)},
    CacheSnapshot(
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
        {"host": TierSnapshot(1, 2, 3, 4, 5, 6, True)},
    ),
    {3: [1, 0, 1 << 40]},
)  # fmt: skip
PARAMS = st.builds(
    SamplingParams,
    n=st.integers(1, 4),
    temperature=st.floats(0, 100) | st.integers(0, 100),
    top_p=st.floats(0.01, 1),
    top_k=st.integers(-1, 100),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    max_tokens=st.none() | st.integers(100, 2**31 - 1),
    min_tokens=st.integers(0, 100),
    stop=st.none() | TEXT.filter(bool) | st.lists(TEXT.filter(bool), max_size=3),
    stop_token_ids=st.none() | IDS,
    ignore_eos=st.booleans(),
    logprobs=st.none() | st.integers(0, 20),
    logit_bias=st.none() | st.dictionaries(st.integers(0, 2**31 - 1), st.floats(-100, 100)),
    allowed_token_ids=st.none() | IDS.filter(bool),
    bad_words=st.none() | st.lists(TEXT.filter(bool), max_size=3),
)
HINTS = st.builds(
    CacheHints,
    ttl=st.none() | REAL,
    pin=st.booleans(),
    salt=TEXT,
    shared_prefix_tokens=st.none() | st.integers(0, 2**31 - 1),
)
CONTEXTS = st.builds(
    RequestContext,
    tenant=TEXT,
    tier=TEXT,
    priority=st.integers(-(2**63), 2**63 - 1),
    deadline=st.none() | REAL,
    labels=st.dictionaries(TEXT, TEXT, max_size=3),
    trust=st.sampled_from(Trust),
    cache=HINTS,
)
REQUESTS = st.builds(
    NewRequest,
    id=TEXT,
    prompt=IDS,
    params=PARAMS,
    context=CONTEXTS,
    banned_sequences=st.lists(IDS, max_size=3),
    keys=st.binary(max_size=48),
)
SCORES = st.builds(
    TokenScore, st.integers(0, 2**31), REAL, st.integers(1, 2**31),
    st.lists(st.tuples(st.integers(0, 2**31), REAL), max_size=3),
)  # fmt: skip
MOMENTS = st.none() | REAL
TIMINGS = st.builds(
    Timings, MOMENTS, MOMENTS, MOMENTS, REAL, st.integers(0, 2**31), st.integers(0, 2**31),
    st.integers(0, 2**31),
)  # fmt: skip
DELTAS = st.builds(
    Delta,
    id=TEXT,
    index=st.integers(0, 20_000),
    tokens=IDS,
    finish=st.none() | st.sampled_from(FinishReason),
    stop=st.none() | st.integers(0, 2**31),
    scores=st.lists(SCORES, max_size=2),
    prompt_scores=st.none() | st.dictionaries(st.integers(0, 2**20), SCORES, max_size=2),
    error=st.none() | TEXT,
    num_cached=st.integers(0, 2**31),
    timings=st.none() | TIMINGS,
    rejection=st.none() | st.builds(Rejection, TEXT, REAL),
)


def carried(new: NewRequest, sent: float = 0.0, taken: float = 0.0) -> NewRequest:
    """The request as the engine's process sees it."""
    command = decode_command(encode_request(new, sent))
    assert isinstance(command, Add)
    return request_of(command, taken)


@given(REQUESTS)
def test_a_request_arrives_as_it_was(new: NewRequest) -> None:
    assert carried(new) == new


@given(st.lists(DELTAS, max_size=5))
def test_the_deltas_of_a_step_arrive_as_they_were(deltas: list[Delta]) -> None:
    news = decode_news(encode_deltas(deltas))
    assert isinstance(news, Deltas)
    assert deltas_of(news) == deltas


def test_tokens_and_scores_may_be_any_sequence() -> None:
    delta = Delta("a", 0, (1, 2), scores=(TokenScore(1, -0.5, 1, ((1, -0.5),)),))
    news = decode_news(encode_deltas([delta]))
    assert isinstance(news, Deltas)
    assert deltas_of(news) == [Delta("a", 0, [1, 2], scores=[TokenScore(1, -0.5, 1, [(1, -0.5)])])]


def test_a_deadline_is_as_far_away_as_it_was() -> None:
    new = NewRequest("a", [1], SamplingParams(), RequestContext(deadline=107.0))
    assert carried(new, sent=100.0, taken=5.0).context.deadline == pytest.approx(12.0)


class Text(str):
    """A kind of text that a plugin may hand over."""


class Real(float):
    """Like the numbers of other libraries."""


def test_values_that_only_behave_like_the_built_in_ones_arrive() -> None:
    params = SamplingParams(temperature=Real(0.5), allowed_token_ids=range(3), stop=("a", "b"))
    found = carried(NewRequest("a", [1], params)).params
    assert (found.temperature, found.allowed_token_ids) == (0.5, [0, 1, 2])
    assert found.stop_strings == ("a", "b")


def test_a_kind_of_text_arrives_as_text() -> None:
    """A text is a sequence too, and an array in its place would be no message to the engine."""
    context = RequestContext(Text("t"), Layer.FILE, labels={Text("a"): Text("b")})
    found = carried(NewRequest(Text("x"), [1], SamplingParams(), context))
    assert (found.id, found.context) == ("x", RequestContext("t", "file", labels={"a": "b"}))


@pytest.mark.parametrize(
    "context",
    [{"priority": 2**70}, {"tenant": 5}, {"labels": {"a": 1}}, {"tier": "\ud800"},
     {"trust": "root"}, {"cache": None}, {"cache": CacheHints(salt="\ud800")},
     {"cache": CacheHints(pin="no")}],  # type: ignore[arg-type]
)
def test_what_no_message_can_hold_is_refused(context: dict[str, Any]) -> None:
    new = NewRequest("a", [1], SamplingParams(), RequestContext(**context))
    with pytest.raises(RequestError, match="cannot be sent"):
        encode_request(new, 0.0)


@pytest.mark.parametrize(
    "error",
    [
        RequestError("a b", param="top_p", code="odd"),
        ContextLengthExceeded("too long"),
        NeverFits("too big"),
        RequestRejected("not now", code="rate_limited", retry_after=2.5),
        EngineStoppedError("gone"),
    ],
)
def test_a_refusal_is_the_same_error_on_the_other_side(error: Exception) -> None:
    message = decode_news(encode(refusal("a", error)))
    assert isinstance(message, Refused) and message.id == "a"
    found = error_of(message)
    assert type(found) is type(error)
    assert (found.args, vars(found)) == (error.args, vars(error))


def test_every_error_class_comes_back_from_a_failed_start() -> None:
    known = vars(errors).values()
    classes = [cls for cls in known if isinstance(cls, type) and issubclass(cls, Exception)]
    assert len(classes) > 15
    for cls in classes:
        message = decode_news(encode(failure(cls.__new__(cls, "a sentence"))))
        assert isinstance(message, Failed)
        found = error_of(message)
        assert type(found) is cls and str(found) == "a sentence"


def test_errors_that_are_defects_or_of_plugins_come_as_the_nearest_known_class() -> None:
    class Own(NeverFits):
        pass

    assert type(error_of(failure(Own("x")))) is NeverFits
    defect = error_of(failure(KeyError("x")))
    assert type(defect) is JackfieldError and str(defect) == "KeyError: 'x'"


ROW = RequestRow(
    "a", 0, "t", "gold", -1, "waiting", 2.5, 1.0, "no_seat", "no free seat", "core", 1, None, 3.5,
    7, 0, 0, 16, 2, 0,
)
COMMANDS: list[Command] = [
    Start({"model": {"name": "x", "seed": 3}}, {"model.name": Origin(Layer.FLAG, "--model")}),
    Abort("a", None, FinishReason.ABORT),
    Abort("a", 3, FinishReason.STOP),
    Explain(7, "a"),
    Ask(8, Query("waiting", "t", None, 5)),
    Reset(9),
    Shutdown(True),
]
NEWS: list[News] = [
    Hello(
        "1.0", "digest", [Identity("kernels", "a", "b:C", "d", "1")], Limits(1, 2, 3, 4, True),
        {"model": "x", "notices": ["y"]}, SNAPSHOT,
    ),
    Failed("ModelNotFound", "gone"),
    Working("Loading", None),
    Advanced(3),
    Worked(),
    Explained(7, [Decision(0.5, 3, "a", Action.ADMIT, "it was first", "fcfs", "order", 1)]),
    Listed(8, RequestPage({"waiting": 1}, 0, 3, [ROW])),
    WasReset(9, True),
    Heartbeat(1.5, SNAPSHOT),
    Died("why"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_arrive_as_they_were(command: Command) -> None:
    assert decode_command(encode(command)) == command


@pytest.mark.parametrize("news", NEWS)
def test_news_arrive_as_they_were(news: News) -> None:
    assert decode_news(encode(news)) == news
