"""How the numbers of answers and steps are distributed."""

from jackfield.core.bounds import (
    ANSWERS,
    PREEMPTIONS,
    REQUEST_SECONDS,
    STEP_TOKENS,
    TOKEN_SECONDS,
    token_bounds,
)
from jackfield.core.engine.request import Request
from jackfield.core.engine.timings import Timings
from jackfield.core.histogram import Histogram, HistogramCounts


class Distributions:
    """One histogram per number, by name; times in seconds.

    Of answers that ended by themselves, counted at their end: one that was aborted or failed says
    nothing about how long answers take. `answers` and `longest_answer` are once per request,
    `step_tokens` once per step.
    """

    def __init__(self, max_model_len: int) -> None:
        tokens = token_bounds(max_model_len)
        self.step_tokens = Histogram(STEP_TOKENS)
        self._histograms = {
            "step_tokens": self.step_tokens,
            "queue_seconds": Histogram(REQUEST_SECONDS),
            "prefill_seconds": Histogram(REQUEST_SECONDS),
            "decode_seconds": Histogram(REQUEST_SECONDS),
            "inference_seconds": Histogram(REQUEST_SECONDS),
            "request_seconds": Histogram(REQUEST_SECONDS),
            "seconds_per_token": Histogram(TOKEN_SECONDS),
            "prompt_tokens": Histogram(tokens),
            "computed_prompt_tokens": Histogram(tokens),
            "output_tokens": Histogram(tokens),
            "max_tokens": Histogram(tokens),
            "preemptions": Histogram(PREEMPTIONS),
            "answers": Histogram(ANSWERS),
            "longest_answer": Histogram(tokens),
        }

    def ended(self, request: Request, timings: Timings) -> None:
        """An answer ended by itself."""
        found, count = self._histograms, len(request.output)
        found["request_seconds"].add(timings.so_far)
        found["prompt_tokens"].add(len(request.prompt))
        found["computed_prompt_tokens"].add(timings.num_computed)
        found["output_tokens"].add(count)
        found["max_tokens"].add(request.max_tokens)
        found["preemptions"].add(timings.num_preemptions)
        self._add_times(timings, count)
        if request.group is None:
            self._request(1, count)
        elif request.group.has_ended:
            self._request(len(request.group.members), request.group.longest)

    def _add_times(self, timings: Timings, count: int) -> None:
        found = self._histograms
        admitted, first, last = timings.admitted, timings.first_token, timings.last_token
        if admitted is not None:
            found["queue_seconds"].add(admitted)
        if admitted is None or first is None or last is None:
            return
        found["prefill_seconds"].add(first - admitted)
        found["decode_seconds"].add(last - first)
        found["inference_seconds"].add(last - admitted)
        if count > 1:
            found["seconds_per_token"].add((last - first) / (count - 1))

    def _request(self, answers: int, longest: int) -> None:
        self._histograms["answers"].add(answers)
        self._histograms["longest_answer"].add(longest)

    def counts(self) -> dict[str, HistogramCounts]:
        """All of this moment."""
        return {name: histogram.counts() for name, histogram in self._histograms.items()}
