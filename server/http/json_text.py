"""JSON as it goes over the wire: ASCII, compact, never NaN or an infinity."""

import json
from json.encoder import encode_basestring_ascii
from typing import Any

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def dump(value: Any) -> bytes:
    """A value. Raises ValueError for a number that JSON does not have."""
    return _encode(value).encode()


def dump_text(text: str) -> bytes:
    """A string, quoted."""
    return encode_basestring_ascii(text).encode()
