"""Questions to a running server, as a command line asks them."""

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from jackfield.core.api import ConfigError, EngineStoppedError, RequestError

KEY_VARIABLE = "JACKFIELD_API_KEY"
PATIENCE = 30.0


class Stays(HTTPRedirectHandler):
    """Goes nowhere else: the key is for one server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(url: str, path: str) -> dict[str, Any]:
    """The JSON object at that path, with the key of `JACKFIELD_API_KEY` if it is set.

    Raises a `JackfieldError` that says what to do.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"the URL {url!r} should look like http://127.0.0.1:8000")
    base = url.rstrip("/").removesuffix("/v1")
    key = os.environ.get(KEY_VARIABLE)
    request = Request(base + path, headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with build_opener(Stays).open(request, timeout=PATIENCE) as answer:
            body = answer.read()
    except HTTPError as error:
        with error:
            raise _refused(base, error) from None
    except (OSError, HTTPException) as error:
        raise EngineStoppedError(
            f"no server answers at {base}: {getattr(error, 'reason', error)}; start one with "
            f"'jackfield serve', or say where it is with --url"
        ) from None
    return _object(base, body)


def _object(base: str, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"what answers at {base} is no Jackfield server; correct --url")
    return found


def _refused(base: str, error: HTTPError) -> Exception:
    if error.code == 401:
        return ConfigError(
            f"the server at {base} wants a key; set {KEY_VARIABLE} to one that it knows"
        )
    try:
        told = json.loads(error.read())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ConfigError(
            f"what answers at {base} is no Jackfield server (status {error.code}); correct --url"
        )
    return RequestError(str(told))
