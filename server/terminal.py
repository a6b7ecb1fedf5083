"""Text to and from standard streams."""

import sys

from jackfield.core.api import RequestError


def show(text: str) -> None:
    """Write to stdout at once; what its encoding has no form for becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def read_all() -> str:
    """All of standard input, without the newline that ends it. Raises `RequestError`."""
    try:
        return sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise _undecodable(error) from error


def read_line() -> str | None:
    """The next line of standard input, without its newline; None at the end."""
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise _undecodable(error) from error
    return line.rstrip("\r\n") if line else None


def _undecodable(error: UnicodeDecodeError) -> RequestError:
    return RequestError(
        f"standard input is no valid {error.encoding}: {error.reason}; send UTF-8 text",
        param="prompt",
    )
