"""An answer as a completion shows it token by token: pieces that join to its text."""

from typing import TYPE_CHECKING, Any

from jackfield.core.text.detokenizer import Detokenizer
from jackfield.core.text.tokenizer import Tokenizer
from jackfield.server.http.token_names import by_name, numbered

if TYPE_CHECKING:
    from jackfield.core.front.outputs import CompletionOutput


class Pieces:
    """Follows one answer. A token is told once the text holds its piece; offset: of its start.

    as_ids: tokens are named by their numbers; the offsets stay those of the text.
    """

    def __init__(
        self, tokenizer: Tokenizer, offset: int, skip_special_tokens: bool, as_ids: bool
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
        self._as_ids = as_ids
        self._offset = offset
        self._shown = 0
        self._read = 0
        self._waiting: list[tuple[int, str]] = []

    def take(self, answer: "CompletionOutput") -> dict[str, Any]:
        """The log-probabilities of the tokens that can be told now, in lists."""
        self._advance(answer)
        told = lists()
        while self._waiting:
            place, piece = self._waiting[0]
            if not answer.finished() and self._shown + len(piece) > len(answer.text):
                break
            self._waiting.pop(0)
            self._tell(told, answer, place, piece[: len(answer.text) - self._shown])
        return told

    def _advance(self, answer: "CompletionOutput") -> None:
        while self._read < len(answer.token_ids):
            piece = self._detokenizer.push((answer.token_ids[self._read],))
            self._waiting.append((self._read, piece))
            self._read += 1
        if answer.finished() and self._waiting:
            place, piece = self._waiting[-1]
            self._waiting[-1] = (place, piece + self._detokenizer.finish())

    def _tell(
        self, told: dict[str, Any], answer: "CompletionOutput", place: int, piece: str
    ) -> None:
        assert answer.logprobs is not None
        scores, token = answer.logprobs[place], answer.token_ids[place]
        told["tokens"].append(numbered(token) if self._as_ids else piece)
        told["token_logprobs"].append(scores[token].logprob)
        told["top_logprobs"].append(by_name(scores, self._as_ids))
        told["text_offset"].append(self._offset)
        self._offset += len(piece)
        self._shown += len(piece)


def lists() -> dict[str, Any]:
    """The four lists of a completion's log-probabilities, empty."""
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
