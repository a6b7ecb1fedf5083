"""The text of one answer as it is shown: decoded, and ended by a stop string."""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.text.detokenizer import Detokenizer
from jackfield.core.text.stops import StopStrings
from jackfield.core.text.tokenizer import Tokenizer


class TextDelta(NamedTuple):
    """What a push adds.

    num_tokens: how many of the pushed ids belong to the answer; with a stop string, those up to
    and including the one that completed it. stop: the stop string that ended the text, or None.
    """

    text: str
    num_tokens: int
    stop: str | None


class TextStream:
    """One answer. Costs what `Detokenizer` does per token, and with stop strings about 4 more.

    Stop strings are looked for in the text that comes after the first `min_tokens` tokens only;
    one that begins before is not found.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stops: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self._detokenizer = Detokenizer(
            tokenizer, skip_special_tokens=skip_special_tokens, prompt_ids=prompt_ids
        )
        self._stops = StopStrings(stops, include=include_stop) if stops else None
        self._unsearched = min_tokens

    def push(self, ids: Sequence[int]) -> TextDelta:
        """Ids after a stop string count for nothing."""
        if self._stops is None:
            return TextDelta(self._detokenizer.push(ids), len(ids), None)
        return self._push_until_stop(ids, self._stops)

    def finish(self) -> TextDelta:
        """The text held back, at the end of an answer; it may still hold a stop string."""
        if self._stops is None:
            return TextDelta(self._detokenizer.finish(), 0, None)
        if self._stops.hit is not None:
            return TextDelta("", 0, self._stops.hit)
        text = self._search(self._detokenizer.finish(), self._stops) + self._stops.finish()
        return TextDelta(text, 0, self._stops.hit)

    def _push_until_stop(self, ids: Sequence[int], stops: StopStrings) -> TextDelta:
        shown: list[str] = []
        for count, index in enumerate(ids):
            if stops.hit is not None:
                return TextDelta("".join(shown), count, stops.hit)
            shown.append(self._search(self._detokenizer.push((index,)), stops))
            self._unsearched -= 1
        return TextDelta("".join(shown), len(ids), stops.hit)

    def _search(self, text: str, stops: StopStrings) -> str:
        return text if self._unsearched > 0 else stops.push(text)
