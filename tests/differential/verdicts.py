"""What is known of differences: who is right, and why. What no verdict covers is open."""

from collections.abc import Callable
from typing import Any, NamedTuple

from cases import Case
from comparing import Difference, first_difference

BROKEN = "\ufffd"


class Verdict(NamedTuple):
    """covers: whether it is about a difference. right: "ours", "peer" or "either"."""

    kind: str
    covers: Callable[[Case, Difference], bool]
    right: str
    reason: str


def verdict_on(case: Case, difference: Difference) -> Verdict | None:
    """The first verdict that covers a difference."""
    plain = case if isinstance(case["body"], dict) else {**case, "body": {}}
    return next(
        (one for one in VERDICTS
         if one.kind == difference.kind and one.covers(plain, difference)),
        None,
    )  # fmt: skip


def _asks(field: str, *values: Any) -> Callable[[Case, Difference], bool]:
    return lambda case, difference: case["body"].get(field) in values


def _does_not_ask(field: str) -> Callable[[Case, Difference], bool]:
    return lambda case, difference: not case["body"].get(field)


def _greedy_twice(case: Case, difference: Difference) -> bool:
    return case["body"].get("n") == 2 and case["body"].get("temperature") == 0


def _half_a_character(case: Case, difference: Difference) -> bool:
    return all(
        one == other or (one or "").rstrip(BROKEN) == other
        for one, other in zip(difference.ours, difference.peer, strict=True)
    )


def _prompt_left_out(case: Case, difference: Difference) -> bool:
    return bool(case["body"].get("echo") and case["body"].get("return_token_ids"))


def _only_names(case: Case, difference: Difference) -> bool:
    """The numbers of all tokens are the same."""
    ours, peer = _numbers(difference.ours), _numbers(difference.peer)
    return first_difference(ours, peer, "") is None


def _numbers(choices: list[Any]) -> list[Any]:
    return [_numbers_of(one) for one in choices if one is not None]


def _numbers_of(scores: dict[str, Any]) -> list[Any]:
    if "content" in scores:
        return [_entry(one) for one in scores["content"]]
    tops = [one and sorted(one.values())[-1] for one in scores["top_logprobs"]]
    return [scores["token_logprobs"], tops]


def _entry(entry: dict[str, Any]) -> list[Any]:
    return [entry["logprob"], *(one["logprob"] for one in entry["top_logprobs"])]


def _not_asked_for(case: Case, difference: Difference) -> bool:
    body = case["body"]
    scored = body.get("prompt_logprobs") is not None
    allowed = {"prompt_logprobs"} if not scored else set()
    if not body.get("return_token_ids"):
        allowed.add("prompt_token_ids")
    return all(name.rsplit(".", 1)[-1] in allowed for name in difference.peer)


def _of_route(*routes: str) -> Callable[[Case, Difference], bool]:
    return lambda case, difference: case["name"] in routes


VERDICTS = (
    Verdict("status", _greedy_twice, "ours", "OpenAI allows n at temperature 0"),
    Verdict("status", _asks("max_tokens", 0), "ours", "OpenAI allows a completion of 0 tokens"),
    Verdict("status", _of_route("max_tokens too big"), "either",
            "OpenAI refuses; ours ends with the context, and says so by its reason"),
    Verdict("status", _of_route("logit_bias 200"), "ours", "OpenAI's limits are -100 and 100"),
    Verdict("text", _half_a_character, "either",
            "half a character at the limit is U+FFFD, as decoding all tokens gives; or left out"),
    Verdict("text", _prompt_left_out, "ours", "echo shows the prompt, with token ids or without"),
    Verdict("logprobs", _only_names, "either",
            "numbers are equal; our names join to the text, or are the token's own bytes"),
    Verdict("usage", _asks("max_tokens", 0), "ours", "no token was answered"),
    Verdict("prompt_logprobs", lambda case, difference: "prompt_logprobs" not in case["body"],
            "ours", "they were not asked for"),
    Verdict("prompt_token_ids", _does_not_ask("return_token_ids"), "ours",
            "they were not asked for"),
    Verdict("role", _asks("add_generation_prompt", False), "ours",
            "OpenAI's types know answers of the assistant only"),
    Verdict("frames", _asks("echo", True), "either",
            "the prompt is a chunk of its own, or one with the first token"),
    Verdict("keys we lack", _not_asked_for, "ours", "they were not asked for"),
    Verdict("keys we lack", _of_route("models"), "either", "permissions are no longer OpenAI's"),
    Verdict("keys we lack", _of_route("tokenizer_info"), "peer",
            "the template and names of files are not told"),
    Verdict("body", _of_route("tokenizer_info"), "either",
            "names of classes; our length is the one that is served"),
)  # fmt: skip
