"""How many tokens an answer took."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackfield.core.front.outputs import RequestOutput


def usage_of(outputs: "Iterable[RequestOutput]") -> dict[str, Any]:
    """Summed over prompts; a prompt with several answers counts once."""
    prompt = completion = cached = 0
    for output in outputs:
        prompt += len(output.prompt_token_ids)
        cached += output.num_cached_tokens
        completion += sum(len(answer.token_ids) for answer in output.outputs)
    return _usage(prompt, completion, cached)


def so_far(output: "RequestOutput", tokens: int) -> dict[str, Any]:
    """Of one answer that has `tokens` tokens by now, with its prompt."""
    return _usage(len(output.prompt_token_ids), tokens, output.num_cached_tokens)


def _usage(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
