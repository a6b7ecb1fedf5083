"""How log-probabilities name a token."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackfield.core.front.outputs import Logprobs


def numbered(token: int) -> str:
    """The name that tells every token from every other, whatever its text."""
    return f"token_id:{token}"


def by_name(scores: "Logprobs", as_ids: bool) -> dict[str, float]:
    """The likeliest first, by number or by text; of tokens that look alike, the likelier one."""
    found: dict[str, float] = {}
    for token, score in sorted(scores.items(), key=lambda item: item[1].rank):
        name = numbered(token) if as_ids else score.decoded_token or ""
        found.setdefault(name, score.logprob)
    return found
