"""POST /v1/completions."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from jackfield.core.api.errors import RequestError
from jackfield.core.api.sampling import SamplingParams
from jackfield.server.http.answering import answer
from jackfield.server.http.body import read_body
from jackfield.server.http.calls import Call
from jackfield.server.http.completion_reply import CompletionReply
from jackfield.server.http.completion_request import MAX_TOKENS, CompletionRequest
from jackfield.server.http.prompts import encode_prompts
from jackfield.server.http.service import Service


class CompletionRoute:
    """Text goes on where the prompt ends."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def complete(self, request: Request) -> Response:
        """Complete one prompt or many, each n times."""
        service = self._service
        body = await read_body(request, CompletionRequest, service.settings)
        name, shared = service.naming("cmpl", body)
        body.check()
        params = _params(body, service.backend.sampling_defaults)
        limit = service.settings.max_answers
        prompts = body.prompts(limit)
        check_answers(len(prompts) * params.n, limit)
        if body.echo or body.logprobs is not None:
            service.need_tokenizer()
        ready = await encode_prompts(service, body, prompts)
        context = service.context(request, body)
        names = [name] if len(ready) == 1 else [f"{name}-{place}" for place in range(len(ready))]
        calls = [
            Call(one, prompt, params, context)
            for one, prompt in zip(names, ready, strict=True)
        ]
        body.n = params.n
        reply = CompletionReply(body, len(ready), shared, service.backend.tokenizer)
        return await answer(service, request, body, calls, reply)


def check_answers(count: int, limit: int) -> None:
    """Raise `RequestError` for more answers than one request gets."""
    if count > limit:
        raise RequestError(
            f"The request asks for {count} answers; at most {limit} are given to one request, so "
            f"lower n or send fewer prompts at once.",
            param="n",
        )


def _params(body: CompletionRequest, defaults: Any) -> SamplingParams:
    further = {} if body.logprobs is None else {"logprobs": body.logprobs}
    if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
        further["prompt_logprobs"] = body.logprobs
    return body.sampling({"max_tokens": MAX_TOKENS, **defaults}, **further)
