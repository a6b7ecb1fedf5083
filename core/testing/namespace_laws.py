"""Laws of a namespace: what it returns as a salt, and that it keeps to it."""

from typing import Any

from jackfield.core.api import CacheHints, RequestContext, RequestView, SamplingParams
from jackfield.core.engine.request import Request

CONTEXTS = (
    RequestContext(),
    RequestContext("red"),
    RequestContext("red", "gold", 3, 5.0),
    RequestContext("\N{GREEK SMALL LETTER ALPHA}" * 100),
    RequestContext("green", cache=CacheHints(salt="red", ttl=1.0, pin=True)),
    RequestContext("", cache=CacheHints(shared_prefix_tokens=4)),
)
PROMPTS = ((1,), tuple(range(40)))


def view_of(
    handle: int, context: RequestContext, prompt: tuple[int, ...] = (1, 2, 3)
) -> RequestView:
    """How a plugin sees a request."""
    params = SamplingParams(max_tokens=4)
    request = Request(
        handle, f"r{handle}", 0, prompt, params, context,
        arrival=float(handle), seed=0, max_tokens=4, eos_ids=frozenset(),
    )  # fmt: skip
    return request.view


def check_salts(plugin: Any) -> None:
    """M5: bytes, the same whenever it is asked, and for requests that are alike too.

    Otherwise no request would ever find what another one has computed.
    """
    name, handle = type(plugin).__name__, 0
    for context in CONTEXTS:
        for prompt in PROMPTS:
            first, again, other = (handle, handle, handle + 1)
            views = [view_of(number, context, prompt) for number in (first, again, other)]
            salts = [plugin.salt(view) for view in views]
            handle += 2
            assert all(type(salt) is bytes for salt in salts), f"M5: {name}.salt gave {salts[0]!r}"
            assert salts[0] == salts[1], f"M5: {name}.salt says {salts[0]!r} and then {salts[1]!r}"
            assert salts[0] == salts[2], (
                f"M5: {name}.salt tells requests apart that are alike: {salts[0]!r}, {salts[2]!r}"
            )
