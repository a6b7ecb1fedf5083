"""What all routes share."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.requests import Request

from jackfield.core.api.errors import TokenizerError
from jackfield.core.api.request import RequestContext, Trust
from jackfield.server.http.backend import Backend
from jackfield.server.http.identity import Identity
from jackfield.server.http.identity_numbers import IdentityNumbers
from jackfield.server.http.metrics import Metrics
from jackfield.server.http.owners import Owners
from jackfield.server.http.problem import Refusal
from jackfield.server.http.settings import HttpSettings

if TYPE_CHECKING:
    from jackfield.core.text.tokenizer import Tokenizer
    from jackfield.server.http.request_fields import RequestFields

USER = "user"
LONGEST_USER = 128


class Service:
    """The engine, how it is offered, and what is counted. draining: no new client should come."""

    def __init__(self, backend: Backend, settings: HttpSettings) -> None:
        self.backend = backend
        self.settings = settings
        self.metrics = Metrics(
            backend, self.names[0], settings.metrics_compat, settings.patience
        )
        self.identity = Identity(settings.identify)
        self.metrics.add(IdentityNumbers(self.identity))
        self.owners = Owners()
        self.draining = False
        self.created = int(time.time())

    @property
    def names(self) -> Sequence[str]:
        """What requests may call the model; the first name is the one that answers show."""
        return self.settings.model_names or (Path(self.backend.summary.model).name,)

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus answer, in tokens."""
        return self.backend.summary.max_model_len

    def check_model(self, name: str | None) -> str:
        """The name to show. Raises `Refusal` for a model that is not served."""
        if name is not None and name not in self.names:
            raise Refusal(
                f"The model {name[:200]!r} does not exist; this server has "
                f"{', '.join(self.names)}.",
                status=404,
                code="model_not_found",
                param="model",
            )
        return name or self.names[0]

    def need_tokenizer(self) -> "Tokenizer":
        """The tokenizer. Raises `TokenizerError` where there is none."""
        tokenizer = self.backend.tokenizer
        if tokenizer is None:
            raise TokenizerError(
                "This model was loaded without a tokenizer; send token ids to /v1/completions."
            )
        return tokenizer

    def context(self, request: Request, fields: "RequestFields") -> RequestContext:
        """Who asks, how urgently, and what of the cache.

        A body can neither claim a tenant nor push ahead.
        """
        context: RequestContext = request.state.context
        context = context._replace(cache=fields.hints(context.cache))
        if fields.user and USER not in context.labels:
            labels = {**context.labels, USER: fields.user[:LONGEST_USER]}
            context = context._replace(labels=MappingProxyType(labels))
        if fields.priority is None:
            return context
        lowest = context.priority if context.trust is Trust.USER else fields.priority
        return context._replace(priority=max(fields.priority, lowest))

    def naming(self, prefix: str, fields: "RequestFields") -> tuple[str, dict[str, Any]]:
        """The id of a request for the engine, and the fields that all its answers show."""
        name = f"{prefix}-{uuid4().hex}" if fields.request_id is None else fields.request_id
        shown = {"id": name, "created": int(time.time()), "model": self.check_model(fields.model)}
        return name, shown
