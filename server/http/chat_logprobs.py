"""Log-probabilities as chats show them: a list with one entry per token."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jackfield.server.http.token_names import numbered

if TYPE_CHECKING:
    from jackfield.core.api.output import Logprob
    from jackfield.core.front.outputs import Logprobs
    from jackfield.core.text.tokenizer import Tokenizer


class ChatScores(NamedTuple):
    """What is told of each token. top: so many of the likeliest; as_ids: named by number."""

    top: int
    as_ids: bool
    tokenizer: "Tokenizer | None"

    def told(self, ids: Sequence[int], scores: "Iterable[Logprobs]") -> dict[str, Any]:
        """The tokens of an answer, or of a piece of it, each with its likeliest rivals."""
        return {
            "content": [
                self._entry(token, found[token]) | {"top_logprobs": self._top(found)}
                for token, found in zip(ids, scores, strict=True)
            ],
            "refusal": None,
        }

    def _top(self, found: "Logprobs") -> list[dict[str, Any]]:
        ranked = sorted(found.items(), key=lambda item: item[1].rank)[: self.top]
        return [self._entry(token, score) for token, score in ranked]

    def _entry(self, token: int, score: "Logprob") -> dict[str, Any]:
        text = score.decoded_token or ""
        data, tokenizer = text.encode(), self.tokenizer
        if tokenizer is not None and tokenizer.byte_level and token not in tokenizer.special_ids:
            data = tokenizer.token_bytes(token)
        name = numbered(token) if self.as_ids else text
        return {"token": name, "logprob": score.logprob, "bytes": list(data)}


def prompt_logprobs(scores: "Sequence[Logprobs | None] | None") -> list[dict[str, Any] | None]:
    """Of a prompt: by token id at each place, null at the first."""
    return [
        None if found is None else {str(token): score._asdict() for token, score in found.items()}
        for found in scores or ()
    ]
