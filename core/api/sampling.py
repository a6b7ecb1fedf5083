"""How one answer is sampled and when it ends."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from jackfield.core.api.errors import RequestError

MAX_SEED = 2**63 - 1
MAX_LOGPROBS = 20
MAX_ANSWERS = 16_384
MAX_STOPS = 256
SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Checked when it is made: a wrong value raises `RequestError` that names the field.

    max_tokens: most new tokens; None = all that fit in the context and the KV pool.
    min_tokens: end-of-sequence ids, stop ids and stop strings are ignored before this many.
    temperature: 0 = greedy. top_k: 0 or -1 = all. top_p, min_p: as usual; min_p is relative to
    the most likely token. repetition_penalty acts on prompt and answer; presence and frequency
    penalties on the answer only.
    seed: with it, a token depends on logits, seed and position only; None = drawn by the engine.
    logit_bias: token id -> value added to its logit. allowed_token_ids: nothing else is sampled.
    bad_words: texts that never appear in the answer, as token sequences.
    logprobs: number of most likely tokens to report beside the sampled one; prompt_logprobs the
    same for the prompt. n: independent answers to one prompt.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_flags()
        self._check_lists()
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            _refuse("min_tokens", f"is {self.min_tokens}, more than max_tokens {self.max_tokens}")

    def _check_numbers(self) -> None:
        _integer("n", self.n, 1, MAX_ANSWERS)
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            _refuse("top_p", "must be above 0; for greedy decoding set temperature 0")
        _integer("top_k", self.top_k, -1, 2**31 - 1)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        if self.seed is not None:
            _integer("seed", self.seed, -MAX_SEED - 1, MAX_SEED)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 0, 2**31 - 1)
        _integer("min_tokens", self.min_tokens, 0, 2**31 - 1)
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                _integer(name, value, 0, MAX_LOGPROBS)

    def _check_flags(self) -> None:
        names = ("include_stop_str_in_output", "ignore_eos", "detokenize", "skip_special_tokens")
        for name in names:
            if not isinstance(getattr(self, name), bool):
                _refuse(name, f"must be true or false, not {getattr(self, name)!r}")

    def _check_lists(self) -> None:
        if self.stop is not None:
            self._check_stop(self.stop)
        if self.bad_words is not None:
            _strings("bad_words", _sequence("bad_words", self.bad_words))
        for name in ("stop_token_ids", "allowed_token_ids"):
            if getattr(self, name) is not None:
                for token in _sequence(name, getattr(self, name)):
                    _integer(f"an entry of {name}", token, 0, 2**31 - 1, param=name)
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            _refuse("allowed_token_ids", "is empty, so nothing could be sampled; leave it out")
        if self.logit_bias is not None:
            self._check_logit_bias(self.logit_bias)

    def _check_stop(self, stop: str | Sequence[str]) -> None:
        _strings("stop", [stop] if isinstance(stop, str) else _sequence("stop", stop))
        if stop and not self.detokenize:
            _refuse("stop", "needs detokenize=True; use stop_token_ids without it")

    @staticmethod
    def _check_logit_bias(bias: Mapping[int, float]) -> None:
        if not isinstance(bias, Mapping):
            _refuse("logit_bias", "must map token ids to numbers")
        for token, value in bias.items():
            _integer("a key of logit_bias", token, 0, 2**31 - 1, param="logit_bias")
            _number(f"logit_bias[{token}]", value, -100.0, 100.0, param="logit_bias")

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings as a tuple, whatever form `stop` had."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < 1e-5

    def with_(self, **changes: Any) -> "SamplingParams":
        """A checked copy with some fields changed."""
        return replace(self, **changes)


FIELDS = tuple(field.name for field in fields(SamplingParams))


def _shown(value: Any) -> str:
    """Short, whatever a caller sends; integers of thousands of digits have no text at all."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _refuse(name: str, problem: str, *, param: str | None = None) -> None:
    raise RequestError(f"{name} {problem}", param=param or name)


def _integer(name: str, value: Any, low: int, high: int, *, param: str | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(name, f"must be an integer, not {_shown(value)}", param=param)
    if not low <= value <= high:
        _refuse(name, f"must be between {low} and {high}, got {_shown(value)}", param=param)


def _number(name: str, value: Any, low: float, high: float, *, param: str | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(name, f"must be a number, not {_shown(value)}", param=param)
    if not low <= value <= high or not math.isfinite(value):
        problem = f"must be a finite number between {low} and {high}, got {_shown(value)}"
        _refuse(name, problem, param=param)


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        _refuse(name, f"must be a list, not {_shown(value)}")
    return list(value)


def _strings(name: str, values: Sequence[Any]) -> None:
    if len(values) > MAX_STOPS:
        _refuse(name, f"has {len(values)} entries; at most {MAX_STOPS} are allowed")
    for value in values:
        if not isinstance(value, str) or not value:
            _refuse(name, f"holds {_shown(value)}; every entry must be a non-empty string")
