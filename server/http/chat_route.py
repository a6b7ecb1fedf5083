"""POST /v1/chat/completions."""

from starlette.requests import Request
from starlette.responses import Response

from jackfield.core.api.sampling import SamplingParams
from jackfield.server.http.answering import answer
from jackfield.server.http.body import read_body
from jackfield.server.http.calls import Call
from jackfield.server.http.chat_reply import ChatReply
from jackfield.server.http.chat_request import ChatRequest
from jackfield.server.http.completion_route import check_answers
from jackfield.server.http.prompts import about_messages, render_conversation
from jackfield.server.http.service import Service
from jackfield.server.http.tiers import choose


class ChatRoute:
    """The next message of a conversation."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, request: Request) -> Response:
        """Answer a conversation n times."""
        service = self._service
        body = await read_body(request, ChatRequest, service.settings)
        name, shared = service.naming("chatcmpl", body)
        body.check()
        params = self._params(body)
        check_answers(params.n, service.settings.max_answers)
        ready = await render_conversation(service, body)
        tier = choose(
            service.settings.service_tiers, service.context(request, body), body.service_tier
        )
        if body.service_tier is not None:
            shared["service_tier"] = tier.shown
        if not tier.heard:
            request.state.ignored = [*request.state.ignored, "service_tier"]
        call = Call(name, ready, params, tier.context)
        body.n = params.n
        reply = ChatReply(body, shared, service.backend.tokenizer)
        with about_messages():
            return await answer(service, request, body, [call], reply)

    def _params(self, body: ChatRequest) -> SamplingParams:
        limit = body.most_tokens()
        further = {} if limit is None else {"max_tokens": limit}
        if body.top is not None:
            further["logprobs"] = body.top
        return body.sampling(self._service.backend.sampling_defaults, **further)
