"""A loaded model for a command that talks to one user."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from jackfield import AsyncLLM, RequestOutput
from jackfield.core.api import JackfieldError, SamplingParams

Prompt = Mapping[str, Any]


class Session:
    """Loads the model when it is made and says on stderr what was started.

    Takes what `AsyncLLM` takes. Ctrl-C during an answer aborts it and raises `KeyboardInterrupt`.
    """

    def __init__(self, **arguments: Any) -> None:
        self._llm = AsyncLLM(**arguments)
        self._runner = asyncio.Runner()
        self._count = 0
        print("\n".join(self._llm.assembly.summary.lines()), file=sys.stderr, flush=True)

    @property
    def model(self) -> str:
        """The model's folder."""
        return self._llm.assembly.summary.model

    @property
    def has_template(self) -> bool:
        """Whether the model says how a conversation is written."""
        tokenizer = self._llm.assembly.tokenizer
        return tokenizer is not None and tokenizer.chat_template is not None

    @property
    def recommended(self) -> Mapping[str, Any]:
        """Sampling that the model's generation_config.json asks for."""
        return self._llm.assembly.sampling_defaults

    def conversation(self, messages: Sequence[Mapping[str, Any]]) -> Prompt:
        """Messages through the chat template. Raises `TokenizerError` without one."""
        text, ids = self._llm.assembly.render_chat(messages)
        return {"prompt": text, "prompt_token_ids": ids}

    def answer(
        self, prompt: Prompt, params: SamplingParams, on_text: Callable[[str], None]
    ) -> RequestOutput:
        """The finished answer; `on_text` is called with each new piece of its text.

        Raises `RequestError` for what is refused, and `JackfieldError` for an answer that failed.
        """
        self._count += 1
        output = self._runner.run(self._stream(prompt, params, on_text))
        error = output.outputs[0].error
        if error is not None:
            raise JackfieldError(f"the answer failed: {error}")
        return output

    async def _stream(
        self, prompt: Prompt, params: SamplingParams, on_text: Callable[[str], None]
    ) -> RequestOutput:
        shown, last = 0, None
        async for output in self._llm.generate(prompt, params, request_id=str(self._count)):
            text = output.outputs[0].text
            on_text(text[shown:])
            shown, last = len(text), output
        assert last is not None and last.finished
        return last

    def explain(self) -> list[dict[str, Any]]:
        """Why the last request waited, ran, lost its seat or ended."""
        decisions = self._llm.assembly.engine.explain(str(self._count))
        return [decision._asdict() for decision in decisions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._llm.close())
        self._runner.close()
