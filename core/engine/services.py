"""What the engine lends its policies beside numbers; they are built before it."""

import random

from jackfield.core.api import PolicyContext, Predictor, RequestView
from jackfield.core.engine.clock import Clock
from jackfield.core.engine.planner import Limits, Planner
from jackfield.core.engine.request import Request, View
from jackfield.core.engine.step_model import StepModel
from jackfield.core.engine.tree import WaitingTree


class Services:
    """Handed to the policies' contexts; does nothing until an engine is bound.

    predict: what the policies ask; the engine's own model unless another one is given.
    """

    def __init__(self, predict: Predictor | None = None) -> None:
        self.model = StepModel()
        self._predict = predict or self.model
        self._planner: Planner | None = None
        self._tree: WaitingTree | None = None
        self._cached: dict[Request, int] = {}

    def bind(self, planner: Planner, tree: WaitingTree) -> None:
        """The engine is built."""
        self._planner, self._tree = planner, tree

    def context(
        self, rng: random.Random, clock: Clock, limits: Limits, block_size: int
    ) -> PolicyContext:
        """What one policy gets."""
        return PolicyContext(
            rng=rng,
            now=clock.now,
            max_num_seqs=limits.max_seqs,
            max_num_batched_tokens=limits.max_tokens,
            max_model_len=limits.max_model_len,
            block_size=block_size,
            cached_tokens=self.cached_tokens,
            rekey=self.rekey,
            predict=self._predict,
        )

    def begin(self) -> None:
        """A step is planned: what was in the cache may have changed."""
        self._cached.clear()

    def cached_tokens(self, request: RequestView) -> int:
        """See `PolicyContext`."""
        if self._planner is None or not isinstance(request, View):
            return 0
        record = request._request
        found = self._cached.get(record)
        if found is None:
            found = self._cached[record] = self._planner.cached_tokens(record)
        return found

    def recompute_seconds(self, num_tokens: int) -> float | None:
        """How long computing so many known tokens takes, beside a step that runs anyway."""
        whole = self.model.step_seconds(0, 0, num_tokens)
        fixed = self.model.step_seconds(0, 0, 0)
        return None if whole is None or fixed is None else whole - fixed

    def rekey(self, request: RequestView) -> None:
        """See `PolicyContext`."""
        if self._tree is not None and isinstance(request, View):
            self._tree.rekey(request._request)
