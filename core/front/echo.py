"""Prompt and answer as one text with its tokens, as a completion with `echo` shows them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from jackfield.core.front.outputs import Logprobs, RequestOutput
from jackfield.core.text.detokenizer import Detokenizer
from jackfield.core.text.tokenizer import Tokenizer


class Echoed(NamedTuple):
    """All lists have one entry per token, those of the prompt first.

    tokens: they join to the text; a token that ends inside a character is empty, and the one that
    completes the character carries it. text_offset: characters before each token.
    token_logprobs, top_logprobs: None for the first token, and where no scores were asked for;
    the top ones by text, the likeliest of those that look alike.
    """

    text: str
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def echo(output: RequestOutput, answer_index: int, tokenizer: Tokenizer) -> Echoed:
    """The prompt followed by one answer to it.

    A prompt that was given as ids shows its special tokens. Scores come from `prompt_logprobs` and
    `logprobs` of the output.
    """
    answer = output.outputs[answer_index]
    prompt_ids = list(output.prompt_token_ids)
    tokens = _prompt_pieces(output.prompt, prompt_ids, tokenizer)
    tokens += _answer_pieces(answer.text, answer.token_ids, tokenizer)
    ids = [*prompt_ids, *answer.token_ids]
    scores: list[Logprobs | None] = list(output.prompt_logprobs or [None for _ in prompt_ids])
    scores += answer.logprobs or [None for _ in answer.token_ids]
    return Echoed(
        "".join(tokens),
        tokens,
        [None if found is None else found[token].logprob
         for token, found in zip(ids, scores, strict=True)],
        [None if found is None else _by_text(found) for found in scores],
        [0, *accumulate(map(len, tokens))][: len(tokens)],
    )  # fmt: skip


def _by_text(scores: Logprobs) -> dict[str, float]:
    found: dict[str, float] = {}
    for score in sorted(scores.values(), key=lambda score: score.rank):
        found.setdefault(score.decoded_token or "", score.logprob)
    return found


def _prompt_pieces(text: str | None, ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    pieces = _pieces(ids, tokenizer, skip_special_tokens=False)
    if text is None or "".join(pieces) == text:
        return pieces
    spans = tokenizer.spans(text, ids)
    return pieces if spans is None else _cut(text, spans)


def _cut(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The text divided among tokens by where each comes from; an empty span takes nothing."""
    pieces = [""] * len(spans)
    done = 0
    holders = [place for place, (start, end) in enumerate(spans) if start < end]
    for place, after in zip(holders, [*holders[1:], None], strict=True):
        end = len(text) if after is None else min(spans[place][1], spans[after][0])
        pieces[place] = text[done:end]
        done = max(done, end)
    return pieces


def _answer_pieces(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """The pieces of what is shown: a stop string, and what follows it, is not."""
    pieces = _pieces(ids, tokenizer, skip_special_tokens=True)
    if not "".join(pieces).startswith(text):
        pieces = _pieces(ids, tokenizer, skip_special_tokens=False)
    shown, left = [], len(text)
    for piece in pieces:
        shown.append(piece[:left])
        left -= len(shown[-1])
    return shown


def _pieces(ids: Sequence[int], tokenizer: Tokenizer, *, skip_special_tokens: bool) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    pieces = [detokenizer.push((index,)) for index in ids]
    if pieces:
        pieces[-1] += detokenizer.finish()
    return pieces
