"""How the HTTP face of an engine is set up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jackfield.core.api.request import RequestContext

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """api_keys: key -> who its holder is; empty = no key is asked for, all are tenant "default".

    model_names: names that requests may use, the first is the one shown; empty = the model's own.
    strict: fields that are not known are refused with 400 instead of named in a header.
    max_body: bytes of a request. max_answers: prompts of one request times n.
    """

    api_keys: Mapping[str, RequestContext] = field(default_factory=dict)
    model_names: tuple[str, ...] = ()
    strict: bool = False
    max_body: int = 16 * MIB
    max_answers: int = 1024
