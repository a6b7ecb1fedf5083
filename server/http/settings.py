"""How the HTTP face of an engine is set up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jackfield.server.http.backend import PATIENCE, Patience
from jackfield.server.http.identity import Identifier, everybody
from jackfield.server.http.metrics import Compat

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """identify: who is asked who a caller is, in this order; nobody = nobody is let in.
    needs_key: whether /openapi.json says that a key must be sent.

    model_names: names that requests may use, the first is the one shown; empty = the model's own.
    strict: fields that are not known are refused with 400 instead of named in a header.
    max_body: bytes of a request, which come within body_seconds. max_answers: prompts of one
    request times n. metrics_compat: whose names of metrics are there beside the own ones.
    service_tiers: what OpenAI's `service_tier` means, as tiers for policies. patience: with an
    engine that does not answer.
    """

    identify: Sequence[Identifier] = (("everybody", everybody),)
    needs_key: bool = False
    model_names: tuple[str, ...] = ()
    strict: bool = False
    max_body: int = 16 * MIB
    body_seconds: float = 60.0
    max_answers: int = 1024
    metrics_compat: Compat = "none"
    service_tiers: Mapping[str, str] = field(default_factory=dict)
    patience: Patience = PATIENCE
