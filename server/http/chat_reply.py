"""A chat's answer, whole or in chunks."""

from typing import TYPE_CHECKING, Any

from jackfield.server.http.chat_logprobs import ChatScores, prompt_logprobs
from jackfield.server.http.envelope import Envelope
from jackfield.server.http.failed_answer import check_whole
from jackfield.server.http.json_text import dump, dump_text
from jackfield.server.http.progress import Progress
from jackfield.server.http.system import FINGERPRINT
from jackfield.server.http.usage import so_far, usage_of

if TYPE_CHECKING:
    from jackfield.core.front.outputs import CompletionOutput, RequestOutput
    from jackfield.core.text.tokenizer import Tokenizer
    from jackfield.server.http.chat_request import ChatRequest

ROLE = (
    b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
)

ECHO = b'{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}'


class ChatReply:
    """Writes for one request. shared: id, created and model, as every body and chunk has them."""

    def __init__(
        self, request: "ChatRequest", shared: dict[str, Any], tokenizer: "Tokenizer | None"
    ) -> None:
        self._shared = {**shared, "system_fingerprint": FINGERPRINT}
        self._scores: ChatScores | None = None
        if request.top is not None:
            as_ids = request.return_tokens_as_token_ids is True
            self._scores = ChatScores(request.top, as_ids, tokenizer)
        self._echo = request.echoed()
        self._counts = request.counts_always
        self._token_ids = request.return_token_ids is True
        self._prompt_scores = request.prompt_logprobs is not None
        self._progress = [Progress() for _ in range(request.n or 1)]
        chunks = {"object": "chat.completion.chunk", **self._shared}
        self.envelope = Envelope(chunks, usage=request.include_usage and not self._counts)

    def document(self, outputs: "list[RequestOutput]") -> dict[str, Any]:
        """The whole answer. Raises `AnswerFailed`."""
        (output,) = outputs
        document = {
            "object": "chat.completion",
            **self._shared,
            "choices": [self._choice(answer) for answer in output.outputs],
            "usage": usage_of(outputs),
        }
        if self._token_ids:
            document["prompt_token_ids"] = list(output.prompt_token_ids)
        if self._prompt_scores:
            document["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
        return document

    def _choice(self, answer: "CompletionOutput") -> dict[str, Any]:
        check_whole(answer)
        choice: dict[str, Any] = {
            "index": answer.index,
            "message": {"role": "assistant", "content": self._echo + answer.text, "refusal": None},
            "logprobs": self._logprobs(answer, 0),
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        }
        return choice | ({"token_ids": answer.token_ids} if self._token_ids else {})

    def _logprobs(self, answer: "CompletionOutput", start: int) -> dict[str, Any] | None:
        if self._scores is None:
            return None
        return self._scores.told(answer.token_ids[start:], (answer.logprobs or [])[start:])

    def frames(self, place: int, output: "RequestOutput") -> bytes:
        """What the client does not have yet. Raises `AnswerFailed`."""
        assert place == 0, "a chat has one prompt"
        return b"".join(
            self._frames(output, answer, progress)
            for answer, progress in zip(output.outputs, self._progress, strict=True)
            if not progress.ended and (answer.token_ids or answer.finish_reason)
        )

    def _frames(
        self, output: "RequestOutput", answer: "CompletionOutput", progress: Progress
    ) -> bytes:
        check_whole(answer)
        first = b"" if progress.begun else self._begin(output, answer.index, progress)
        text = answer.text[progress.characters :]
        per_token = self._token_ids or self._scores is not None
        news = per_token and len(answer.token_ids) > progress.tokens
        if not (text or news or answer.finish_reason):
            return first
        count = self._count(output, len(answer.token_ids))
        chunk = self.envelope.chunk(self._delta(answer, text, progress), count)
        progress.characters += len(text)
        progress.tokens = len(answer.token_ids)
        progress.ended = answer.finish_reason is not None
        return first + chunk

    def _begin(self, output: "RequestOutput", index: int, progress: Progress) -> bytes:
        """The chunk that says who speaks, and with `echo` the one that says what is continued."""
        progress.begun = True
        count = self._count(output, 0)
        further = b""
        if self._token_ids:
            further = b',"prompt_token_ids":' + dump(list(output.prompt_token_ids))
        first = self.envelope.chunk(ROLE % index, further + count)
        if not self._echo:
            return first
        return first + self.envelope.chunk(ECHO % (index, dump_text(self._echo)), count)

    def _count(self, output: "RequestOutput", tokens: int) -> bytes:
        return b',"usage":' + dump(so_far(output, tokens)) if self._counts else b""

    def _delta(self, answer: "CompletionOutput", text: str, progress: Progress) -> bytes:
        scores = self._logprobs(answer, progress.tokens)
        parts = [
            b'{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":%b'
            % (
                answer.index,
                dump_text(text),
                b"null" if scores is None else dump(scores),
                b"null" if answer.finish_reason is None else dump_text(answer.finish_reason),
            )
        ]
        if answer.finish_reason is not None:
            parts.append(b',"stop_reason":' + dump(answer.stop_reason))
        if self._token_ids:
            parts.append(b',"token_ids":' + dump(answer.token_ids[progress.tokens :]))
        return b"".join([*parts, b"}"])
