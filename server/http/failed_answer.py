"""Answers that ended without being complete."""

from typing import TYPE_CHECKING

from jackfield.server.http.problem import AnswerFailed

if TYPE_CHECKING:
    from jackfield.core.front.outputs import CompletionOutput


def check_whole(answer: "CompletionOutput") -> None:
    """Raise `AnswerFailed` for an answer that failed or was aborted: it has no honest end."""
    if answer.finish_reason == "error":
        raise AnswerFailed(f"The answer failed: {answer.error or 'the reason is not known'}")
    if answer.finish_reason == "abort":
        raise AnswerFailed("The answer was aborted before it was complete.")
