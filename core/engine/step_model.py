"""How long steps take: a fit of time over what a step holds, made while the engine runs.

seconds = fixed + a * decodes + b * context + c * prefill, no coefficient negative; least squares
of the relative error, in which older steps count less and less.
"""

from collections.abc import Sequence

SIZE = 4
LEAST_STEPS = 16
REFIT_EVERY = 16
FORGETTING = 0.995
RIDGE = 1e-6
OUTLIER = 2.0
"""A step that took so many times what was expected counts as if it had taken only that."""
ROUNDS = 3
UNLIMITED = 2**31
Features = tuple[float, float, float, float]


class StepModel:
    """A `Predictor`. `wanted` turns true with the first question; only then is it worth feeding."""

    def __init__(self) -> None:
        self.wanted = False
        self._first: list[tuple[Features, float]] = []
        self._square = [[0.0] * SIZE for _ in range(SIZE)]
        self._right = [0.0] * SIZE
        self._fit: list[float] | None = None
        self._new = 0

    def add(
        self, seconds: float, decodes: int, context_tokens: int, prefill_tokens: int
    ) -> None:
        """A step has run; one without a duration tells nothing."""
        if seconds <= 0:
            return
        features = (1.0, float(decodes), float(context_tokens), float(prefill_tokens))
        if self._fit is None:
            self._first.append((features, seconds))
            if len(self._first) == LEAST_STEPS:
                self._start()
            return
        expected = _product(self._fit, features)
        self._learn(features, _near(seconds, expected))
        self._new += 1
        if self._new >= REFIT_EVERY:
            self._solve()

    def _start(self) -> None:
        """The first fit: from all first steps, again and again without what stands out."""
        for _ in range(ROUNDS):
            self._square = [[0.0] * SIZE for _ in range(SIZE)]
            self._right = [0.0] * SIZE
            for features, seconds in self._first:
                expected = _product(self._fit, features) if self._fit else seconds
                self._learn(features, _near(seconds, expected))
            self._solve()
        self._first.clear()

    def _learn(self, features: Features, seconds: float) -> None:
        weight = 1.0 / (seconds * seconds)
        for row in range(SIZE):
            weighted = weight * features[row]
            square = self._square[row]
            for column in range(SIZE):
                square[column] = square[column] * FORGETTING + weighted * features[column]
            self._right[row] = self._right[row] * FORGETTING + weighted * seconds

    def _solve(self) -> None:
        self._fit = non_negative(self._square, self._right, self._fit)
        self._new = 0

    def step_seconds(
        self, decodes: int, context_tokens: int, prefill_tokens: int
    ) -> float | None:
        """See `Predictor`."""
        self.wanted = True
        if self._fit is None:
            return None
        features = (1.0, float(decodes), float(context_tokens), float(prefill_tokens))
        return _product(self._fit, features)

    def tokens_within(
        self, seconds: float, decodes: int, context_tokens: int
    ) -> int | None:
        """See `Predictor`."""
        base = self.step_seconds(decodes, context_tokens, 0)
        if base is None or self._fit is None:
            return None
        if base >= seconds:
            return 0
        each = self._fit[3]
        return UNLIMITED if each * UNLIMITED <= seconds - base else int((seconds - base) / each)


def _product(fit: Sequence[float], features: Features) -> float:
    """Written out, since it is asked at every step."""
    fixed, decode, context, prefill = fit
    one, decodes, attended, tokens = features
    return fixed * one + decode * decodes + context * attended + prefill * tokens


def _near(seconds: float, expected: float) -> float:
    if expected <= 0:
        return seconds
    return min(max(seconds, expected / OUTLIER), expected * OUTLIER)


def non_negative(
    square: Sequence[Sequence[float]], right: Sequence[float], before: Sequence[float] | None
) -> list[float]:
    """Solve the normal equations; coefficients that would be negative are left out, one by one.

    What the data say nothing of stays as it was `before`.
    """
    old = before or [0.0] * SIZE
    free = [index for index in range(SIZE) if square[index][index] > 0]
    while free:
        found = _eliminate(square, right, free, old)
        worst = min(range(len(free)), key=lambda place: found[place] * square[free[place]][
            free[place]] ** 0.5)  # fmt: skip
        if found[worst] >= 0:
            values = dict(zip(free, found, strict=True))
            return [values.get(index, 0.0) for index in range(SIZE)]
        del free[worst]
    return list(old)


def _eliminate(
    square: Sequence[Sequence[float]],
    right: Sequence[float],
    free: Sequence[int],
    old: Sequence[float],
) -> list[float]:
    """Gaussian elimination on scaled rows, with a pull towards the old values."""
    scale = [square[index][index] ** -0.5 for index in free]
    rows = []
    for place, i in enumerate(free):
        row = [square[i][j] * scale[place] * s for j, s in zip(free, scale, strict=True)]
        row[place] += RIDGE
        rows.append([*row, right[i] * scale[place] + RIDGE * old[i] / scale[place]])
    size = len(free)
    for pivot in range(size):
        best = max(range(pivot, size), key=lambda place: abs(rows[place][pivot]))
        rows[pivot], rows[best] = rows[best], rows[pivot]
        for below in range(pivot + 1, size):
            factor = rows[below][pivot] / rows[pivot][pivot]
            for column in range(pivot, size + 1):
                rows[below][column] -= factor * rows[pivot][column]
    found = [0.0] * size
    for place in range(size - 1, -1, -1):
        known = sum(rows[place][other] * found[other] for other in range(place + 1, size))
        found[place] = (rows[place][size] - known) / rows[place][place]
    return [value * s for value, s in zip(found, scale, strict=True)]
