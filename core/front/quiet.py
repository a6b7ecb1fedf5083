"""Times in which collections of garbage hold nobody up."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

YOUNG = 20_000
"""New objects after which the young ones are looked at; Python's own number is 700, and admissions
make hundreds that stay for each request."""


@contextmanager
def quiet() -> Iterator[Callable[[], object]]:
    """Meanwhile, what is there now is not looked at, and what is new seldom.

    Gives what leaves out, from then on, what has been made since.

    A collection of all objects of a process with a model takes tenths of a second, and comes where
    most objects are made, such as in a step that admits many; it would count as the time of the
    plugin that is called then. For work that ends: garbage in cycles stays for longer. Where
    somebody else has frozen objects already, everything stays as they left it.
    """
    if gc.get_freeze_count():
        yield lambda: None
        return
    thresholds = gc.get_threshold()
    gc.freeze()
    if thresholds[0]:  # 0 = collections are off
        gc.set_threshold(max(thresholds[0], YOUNG), *thresholds[1:])
    try:
        yield gc.freeze
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
