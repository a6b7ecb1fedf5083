"""A completion's answers, whole or in chunks."""

from typing import TYPE_CHECKING, Any

from jackfield.core.front.echo import echo
from jackfield.core.front.outputs import CompletionOutput, RequestOutput
from jackfield.server.http.chat_logprobs import prompt_logprobs
from jackfield.server.http.envelope import Envelope
from jackfield.server.http.failed_answer import check_whole
from jackfield.server.http.json_text import dump, dump_text
from jackfield.server.http.pieces import Pieces, lists
from jackfield.server.http.progress import Progress
from jackfield.server.http.system import FINGERPRINT
from jackfield.server.http.token_names import by_name, numbered
from jackfield.server.http.usage import so_far, usage_of

if TYPE_CHECKING:
    from jackfield.core.text.tokenizer import Tokenizer
    from jackfield.server.http.completion_request import CompletionRequest


class ScoredProgress(Progress):
    """pieces: what tells the tokens of the answer, once it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: Pieces | None = None


class CompletionReply:
    """Writes for one request with `prompts` prompts. Choices are numbered prompt by prompt."""

    def __init__(
        self,
        request: "CompletionRequest",
        prompts: int,
        shared: dict[str, Any],
        tokenizer: "Tokenizer | None",
    ) -> None:
        self._request = request
        self._n = request.n or 1
        self._shared = {
            "object": "text_completion", **shared, "system_fingerprint": FINGERPRINT
        }  # fmt: skip
        self._tokenizer = tokenizer
        self._scores = request.logprobs is not None
        self._echo = request.echo is True
        self._as_ids = request.return_tokens_as_token_ids is True
        self._counts = request.counts_always
        self._token_ids = request.return_token_ids is True
        self._progress = [ScoredProgress() for _ in range(prompts * self._n)]
        self.envelope = Envelope(self._shared, usage=request.include_usage and not self._counts)

    def document(self, outputs: "list[RequestOutput]") -> dict[str, Any]:
        """The whole answer. Raises `AnswerFailed`."""
        choices = [
            self._choice(place, output, answer)
            for place, output in enumerate(outputs)
            for answer in output.outputs
        ]
        return {**self._shared, "choices": choices, "usage": usage_of(outputs)}

    def _choice(
        self, place: int, output: "RequestOutput", answer: "CompletionOutput"
    ) -> dict[str, Any]:
        check_whole(answer)
        text, told = self._prompt(output)
        scores = None
        if self._scores:
            own = self._pieces(len(text)).take(answer)
            scores = {name: told[name] + own[name] for name in told}
        choice: dict[str, Any] = {
            "index": place * self._n + answer.index,
            "text": text + answer.text,
            "logprobs": scores,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        }
        if self._token_ids:
            choice["prompt_token_ids"] = list(output.prompt_token_ids)
            choice["token_ids"] = answer.token_ids
        if self._request.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
        return choice

    def _prompt(self, output: "RequestOutput") -> tuple[str, dict[str, Any]]:
        """What goes before an answer with `echo`: the text and its log-probabilities."""
        if not self._echo:
            return "", lists()
        assert self._tokenizer is not None, "checked when the request came"
        alone = RequestOutput(
            output.request_id, output.prompt, output.prompt_token_ids, [CompletionOutput(0)],
            prompt_logprobs=output.prompt_logprobs,
        )  # fmt: skip
        shown = echo(alone, 0, self._tokenizer)._asdict()
        if self._as_ids:
            scores = output.prompt_logprobs or ()
            shown["tokens"] = [numbered(token) for token in output.prompt_token_ids]
            shown["top_logprobs"] = [found and by_name(found, True) for found in scores]
        return shown.pop("text"), {name: shown[name] for name in lists()}

    def _pieces(self, offset: int) -> Pieces:
        assert self._tokenizer is not None, "checked when the request came"
        skip = self._request.skip_special_tokens is not False
        return Pieces(self._tokenizer, offset, skip, self._as_ids)

    def frames(self, place: int, output: "RequestOutput") -> bytes:
        """What the client does not have yet. Raises `AnswerFailed`."""
        if self._echo and self._scores and output.prompt_logprobs is None:
            return b""
        own = self._progress[place * self._n : (place + 1) * self._n]
        return b"".join(
            self._frames(place, output, answer, progress)
            for answer, progress in zip(output.outputs, own, strict=True)
            if not progress.ended and (answer.token_ids or answer.finish_reason)
        )

    def _frames(
        self,
        place: int,
        output: "RequestOutput",
        answer: "CompletionOutput",
        progress: ScoredProgress,
    ) -> bytes:
        check_whole(answer)
        index = place * self._n + answer.index
        first = b"" if progress.begun else self._begin(index, output, progress)
        text = answer.text[progress.characters :]
        told = progress.pieces.take(answer) if progress.pieces is not None else None
        fresh = answer.token_ids[progress.tokens :] if self._token_ids else None
        if not (text or fresh or (told and told["tokens"]) or answer.finish_reason):
            return first
        progress.characters += len(text)
        progress.tokens = len(answer.token_ids)
        progress.ended = answer.finish_reason is not None
        end = b"null"
        if answer.finish_reason is not None:
            end = dump_text(answer.finish_reason) + b',"stop_reason":' + dump(answer.stop_reason)
        further = b"" if fresh is None else b',"token_ids":' + dump(fresh)
        count = self._count(output, len(answer.token_ids))
        return first + self._chunk(index, dump_text(text), told, end + further, count)

    def _begin(self, index: int, output: "RequestOutput", progress: ScoredProgress) -> bytes:
        """The prompt as the first chunk of a choice, if it is wanted."""
        progress.begun = True
        text, told = self._prompt(output)
        if self._scores:
            progress.pieces = self._pieces(len(text))
        if not self._echo and not self._token_ids:
            return b""
        end = b"null"
        if self._token_ids:
            end += b',"prompt_token_ids":' + dump(list(output.prompt_token_ids))
        count = self._count(output, 0)
        return self._chunk(index, dump_text(text), told if self._scores else None, end, count)

    def _count(self, output: "RequestOutput", tokens: int) -> bytes:
        return b',"usage":' + dump(so_far(output, tokens)) if self._counts else b""

    def _chunk(
        self, index: int, text: bytes, told: dict[str, Any] | None, end: bytes, count: bytes
    ) -> bytes:
        scores = b"null" if told is None else dump(told)
        choice = b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}'
        return self.envelope.chunk(choice % (index, text, scores, end), count)
