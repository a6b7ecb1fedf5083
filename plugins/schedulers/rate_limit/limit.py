"""How much a tenant may take, and who says so."""

from collections.abc import Mapping

from pydantic import PositiveFloat

from jackfield.core.api import PolicyConfig, RequestContext

EVERYBODY = "*"
LABELS = ("requests_per_minute", "tokens_per_minute")


class Limit(PolicyConfig):
    """None = no limit. burst: seconds, whose worth may be used at once."""

    requests_per_minute: PositiveFloat | None = None
    tokens_per_minute: PositiveFloat | None = None
    burst: PositiveFloat = 60.0


def limit_of(context: RequestContext, limits: Mapping[str, Limit]) -> tuple[str, Limit]:
    """Whose limit it is, and the limit: the tenant's, its labels', its tier's, or everybody's."""
    own = {name: float(context.labels[name]) for name in LABELS if name in context.labels}
    if own and context.tenant not in limits:
        return str(own), Limit(**own)
    names = (name for name in (context.tenant, context.tier) if name in limits)
    name = next(names, EVERYBODY)
    return name, limits.get(name, Limit())
