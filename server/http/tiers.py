"""OpenAI's `service_tier`, as the tier of a policy."""

from collections.abc import Mapping
from typing import NamedTuple

from jackfield.core.api.request import RequestContext, Trust

DEFAULT = "default"
OWN = (None, "auto", DEFAULT)
"""What asks for the caller's own tier."""
ALLOWED = "tiers"
"""The label that says which tiers a caller may choose, with commas between them."""


class Chosen(NamedTuple):
    """A request's context, the service tier that the answer names, and whether it is the wanted."""

    context: RequestContext
    shown: str
    heard: bool


def choose(tiers: Mapping[str, str], context: RequestContext, wanted: str | None) -> Chosen:
    """tiers: service tier -> tier. Whoever may not have the wanted one stays in their own."""
    if wanted in OWN:
        return Chosen(context, DEFAULT, True)
    tier = tiers.get(wanted or DEFAULT)
    if tier is None:
        return Chosen(context, DEFAULT, not tiers)
    if not _may_have(context, tier):
        return Chosen(context, DEFAULT, False)
    return Chosen(context._replace(tier=tier), wanted or DEFAULT, True)


def _may_have(context: RequestContext, tier: str) -> bool:
    if context.trust is not Trust.USER or tier == context.tier:
        return True
    return tier in [name.strip() for name in context.labels.get(ALLOWED, "").split(",")]
