"""Headers of gateways that were not believed, so that nobody relies on them in vain."""

from jackfield.core.api.acting import DEADLINE, GATEWAY_HEADERS, PRIORITY, TENANT, TIER, passed_on
from jackfield.core.api.errors import RequestError
from jackfield.core.api.identity import Caller
from jackfield.core.api.request import RequestContext

FIELDS = {TENANT: "tenant", TIER: "tier", PRIORITY: "priority", DEADLINE: "deadline"}


def unheard(caller: Caller, context: RequestContext) -> list[str]:
    """The headers that say something else than what the caller was taken for."""
    given = [name for name in GATEWAY_HEADERS if name in caller.headers]
    if not given:
        return []
    try:
        said = passed_on(caller)
    except RequestError:
        return given  # somebody who is believed is told what is wrong with them
    return [
        name for name in given if getattr(said, FIELDS[name]) != getattr(context, FIELDS[name])
    ]
