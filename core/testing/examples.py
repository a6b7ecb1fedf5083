"""How often a property is tried, and whether each time with the same examples."""

from typing import Any

from hypothesis import Phase, settings


def settings_for(examples: int, **more: Any) -> settings:
    """For a property that is tried `examples` times, with the same examples in every run.

    A profile of hypothesis with more than its usual 100 examples looks at as many times more, at
    random. Which lines of the engine a failure goes through is not told: it takes long to find.
    """
    factor = settings.default.max_examples / 100 if settings.default is not None else 1
    phases = settings.default.phases if settings.default is not None else tuple(Phase)
    return settings(
        max_examples=max(int(examples * factor), 1),
        derandomize=factor <= 1,
        deadline=None,
        phases=[phase for phase in phases if phase is not Phase.explain],
        **more,
    )
