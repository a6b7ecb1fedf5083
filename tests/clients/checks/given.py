"""What a check is given: two servers and the folder of the first one's model."""

import json
import sys
import urllib.request
from typing import Any

URL, MODEL_FOLDER, KEYED_URL = sys.argv[1:4]
"""A server with the default model as `smol`, that model's folder, a server that wants `KEY`."""
MODEL = "smol"
KEY = "secret"
LONG = "one two three " * 1200
"""More than the context of 2048 tokens."""


def post(path: str, **body: Any) -> Any:
    """The answer to a request as JSON, without any client."""
    head = {"content-type": "application/json"}
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=120) as found:
        return json.load(found)


def raises(kind: type[Exception], call: Any, *arguments: Any, **fields: Any) -> Any:
    """The error of that class that the call raises; no error, or another one, is passed on."""
    try:
        call(*arguments, **fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")
