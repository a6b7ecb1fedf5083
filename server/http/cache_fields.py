"""What a body may ask of the KV cache."""

from hashlib import blake2b
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from jackfield.core.api.cache_hints import MAX_SHARED_TOKENS, MAX_TTL, CacheHints
from jackfield.server.http.body import Body


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


SALT_BYTES = 16
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=MAX_SHARED_TOKENS)]
"""A number such as 1.0 is an integer in JSON."""


class CacheFields(Body):
    """ttl: seconds. What is None is left as the caller's key, or the configuration, has it."""

    ttl: float | None = Field(None, gt=0, le=MAX_TTL)
    pin: bool | None = None
    shared_prefix_tokens: Count | None = None

    def over(self, hints: CacheHints) -> CacheHints:
        """The hints, with what is given here in their place."""
        names = type(self).model_fields
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return hints._replace(**given)


def salted(hints: CacheHints, salt: str) -> CacheHints:
    """With the salt of a body. It adds to a salt that holds for the caller anyway."""
    if hints.salt:
        both = f"{len(hints.salt)}:{hints.salt}{salt}".encode()
        salt = blake2b(both, digest_size=SALT_BYTES).hexdigest()
    return hints._replace(salt=salt)
