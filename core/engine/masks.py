"""What may not be sampled, where that is known only after the step before was collected."""

from collections.abc import Mapping, Sequence

from jackfield.core.api import FinishReason
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request
from jackfield.core.engine.steps import StepPlan


def masks(
    lifecycle: Lifecycle, plan: StepPlan, requests: Sequence[Request]
) -> Mapping[int, Sequence[int]]:
    """Handle -> banned ids, of those requests of the step that bind late.

    A binding that raises ends its own request.
    """
    found = {}
    for part, request in zip(plan.slices, requests, strict=True):
        if request.binder is None or not part.samples or request.is_done:
            continue
        try:
            found[request.handle] = request.binder.banned(request.output)
        except Exception as error:
            reason = f"its late binding raised {type(error).__name__}: {error}"
            code = Code.BINDING_FAILED
            lifecycle.end(request, FinishReason.ERROR, error=reason, code=code)
    return found
