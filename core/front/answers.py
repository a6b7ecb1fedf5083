"""Builds a caller's output from the engine's deltas: text, stop strings, log-probabilities."""

from collections.abc import Mapping, Sequence
from time import monotonic

from jackfield.core.api import FinishReason, Logprob, SamplingParams
from jackfield.core.engine.messages import Delta
from jackfield.core.engine.steps import TokenScore
from jackfield.core.engine.timings import Timings
from jackfield.core.front.outputs import CompletionOutput, Logprobs, RequestOutput
from jackfield.core.front.prompts import Prompt
from jackfield.core.front.request_metrics import RequestMetrics
from jackfield.core.text.output import TextStream
from jackfield.core.text.tokenizer import Tokenizer


class Answer:
    """One answer under way. `ended_by_text`: a stop string ended it before the engine did.

    timings: the latest that the engine told.
    """

    def __init__(
        self,
        index: int,
        params: SamplingParams,
        tokenizer: Tokenizer | None,
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self.output = CompletionOutput(index)
        self.ended_by_text = False
        self.timings: Timings | None = None
        self._heard = 0.0
        self._params = params
        self._tokenizer = tokenizer
        self._stream = _stream(params, tokenizer, prompt_ids)
        if params.logprobs is not None:
            self.output.logprobs = []
            self.output.cumulative_logprob = 0.0

    def take(self, delta: Delta) -> None:
        """Append a delta. What comes after the end counts for nothing."""
        output = self.output
        if delta.timings is not None:
            self.timings, self._heard = delta.timings, monotonic()
        if output.finish_reason is not None:
            return
        count = self._add_text(delta) if self._stream else len(delta.tokens)
        tokens = delta.tokens
        output.token_ids.extend(tokens if count == len(tokens) else tokens[:count])
        if delta.scores:
            for score in delta.scores[:count]:
                self._add_score(score)
        if output.finish_reason is None and delta.finish is not None:
            self._finish(delta)

    def _add_text(self, delta: Delta) -> int:
        assert self._stream is not None
        shown = _shown_tokens(delta, self._params)
        added = self._stream.push(shown)
        self.output.text += added.text
        if added.stop is None:
            return len(delta.tokens)
        self._end_by_text(added.stop)
        return added.num_tokens

    def _end_by_text(self, stop: str) -> None:
        self.output.finish_reason = FinishReason.STOP.value
        self.output.stop_reason = stop
        self.ended_by_text = True
        if self.timings is not None:
            self.timings = _later(self.timings, monotonic() - self._heard)

    def _finish(self, delta: Delta) -> None:
        assert delta.finish is not None
        if self._stream is not None:
            added = self._stream.finish()
            self.output.text += added.text
            if added.stop is not None:
                self._end_by_text(added.stop)
                return
        self.output.finish_reason = delta.finish.value
        self.output.stop_reason = delta.stop
        self.output.error = delta.error

    def _add_score(self, score: TokenScore) -> None:
        output = self.output
        assert output.logprobs is not None and output.cumulative_logprob is not None
        output.logprobs.append(logprobs(score, self._tokenizer))
        output.cumulative_logprob += score.logprob


class Answers:
    """All answers to one prompt."""

    def __init__(
        self, request_id: str, prompt: Prompt, params: SamplingParams, tokenizer: Tokenizer | None
    ) -> None:
        self._answers = [Answer(index, params, tokenizer, prompt.ids) for index in range(params.n)]
        self._tokenizer = tokenizer
        outputs = [answer.output for answer in self._answers]
        self.output = RequestOutput(request_id, prompt.text, prompt.ids, outputs)

    def take(self, delta: Delta) -> bool:
        """Append a delta. True if its answer ended by its text, so the engine has to be told."""
        answer = self._answers[delta.index]
        was_ended = answer.ended_by_text
        answer.take(delta)
        if delta.index == 0:
            self.output.num_cached_tokens = delta.num_cached
        if delta.prompt_scores is not None:
            count = len(self.output.prompt_token_ids)
            self.output.prompt_logprobs = _of_prompt(delta.prompt_scores, count, self._tokenizer)
        if answer.output.finish_reason is not None:
            self._finish()
        return answer.ended_by_text and not was_ended and delta.finish is None

    def _finish(self) -> None:
        """One of the answers has ended."""
        output = self.output
        output.finished = all(one.finished() for one in output.outputs)
        if output.finished and output.metrics is None:
            told = [one.timings for one in self._answers if one.timings is not None]
            output.metrics = RequestMetrics.of(told)


def _later(timings: Timings, seconds: float) -> Timings:
    """Of an answer that ends before the engine knows of it."""
    now = timings.so_far + seconds
    return timings._replace(last_token=now, so_far=now)


def logprobs(score: TokenScore, tokenizer: Tokenizer | None) -> Logprobs:
    """The token itself first, then the likeliest."""
    found = {score.token: Logprob(score.logprob, score.rank, _text(score.token, tokenizer))}
    for rank, (token, logprob) in enumerate(score.top, start=1):
        found.setdefault(token, Logprob(logprob, rank, _text(token, tokenizer)))
    return found


def _of_prompt(
    scores: Mapping[int, TokenScore], count: int, tokenizer: Tokenizer | None
) -> list[Logprobs | None]:
    return [None, *(logprobs(scores[position], tokenizer) for position in range(1, count))]


def _text(token: int, tokenizer: Tokenizer | None) -> str | None:
    return None if tokenizer is None else tokenizer.token_text(token)


def _stream(
    params: SamplingParams, tokenizer: Tokenizer | None, prompt_ids: Sequence[int]
) -> TextStream | None:
    if tokenizer is None or not params.detokenize:
        return None
    return TextStream(
        tokenizer,
        stops=params.stop_strings,
        include_stop=params.include_stop_str_in_output,
        min_tokens=params.min_tokens,
        skip_special_tokens=params.skip_special_tokens,
        prompt_ids=prompt_ids,
    )


def _shown_tokens(delta: Delta, params: SamplingParams) -> Sequence[int]:
    """The text leaves out the token that ended the answer, unless the caller wants it."""
    ended = delta.finish is FinishReason.STOP and not params.include_stop_str_in_output
    return delta.tokens[:-1] if ended else delta.tokens
