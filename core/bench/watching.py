"""Methods of one object that are watched from outside, so that what is measured knows nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Call = Callable[..., Any]


@contextmanager
def wrapped(owner: object, name: str, wrap: Callable[[Call], Call]) -> Iterator[None]:
    """Meanwhile, this one object's method is what `wrap` makes of it."""
    attributes = vars(owner)
    before = attributes.get(name)
    setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
