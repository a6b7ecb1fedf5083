"""The fields that completions and chats share, and what they mean for sampling."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from jackfield.core.api.cache_hints import MAX_SALT, CacheHints
from jackfield.core.api.errors import RequestError
from jackfield.core.api.sampling import SamplingParams
from jackfield.server.http.body import Body
from jackfield.server.http.cache_fields import CacheFields, salted

SAMPLING = (
    "n", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "seed", "max_tokens", "min_tokens", "stop", "stop_token_ids",
    "include_stop_str_in_output", "ignore_eos", "prompt_logprobs", "allowed_token_ids",
    "bad_words", "skip_special_tokens",
)  # fmt: skip
MAX_PRIORITY = 2**31 - 1
MOST_STOPS = 1024
MOST_IDS = 32_768
Stop = Annotated[str, Field(max_length=4096)]


class StreamOptions(Body):
    """include_usage: one more chunk at the end counts the tokens.

    continuous_usage_stats: with it, every other chunk counts those of its choice so far.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class RequestFields(Body):
    """What is None takes the server's preset, then OpenAI's default. Priority: lower goes first."""

    model: str | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stop_token_ids: list[int] | None = Field(None, max_length=MOST_STOPS)
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    prompt_logprobs: int | None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=MOST_IDS)
    allowed_token_ids: list[int] | None = Field(None, max_length=MOST_IDS)
    bad_words: list[Stop] | None = Field(None, max_length=MOST_STOPS)
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    cache: CacheFields | None = None
    cache_salt: str | None = Field(None, min_length=1, max_length=MAX_SALT)
    priority: int | None = Field(None, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    request_id: str | None = Field(None, min_length=1, max_length=128)
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    add_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    truncation_side: Literal["left", "right"] | None = None

    @property
    def answer_limit(self) -> int | None:
        """The tokens that the request itself allows for an answer."""
        return self.max_tokens

    @property
    def counts_always(self) -> bool:
        """Whether every chunk of a stream counts tokens."""
        options = self.stream_options
        return self.include_usage and options is not None and bool(options.continuous_usage_stats)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk that counts the tokens."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    def hints(self, own: CacheHints) -> CacheHints:
        """What is asked of the KV cache. own: what holds for the caller who says nothing."""
        found = own if self.cache is None else self.cache.over(own)
        return found if self.cache_salt is None else salted(found, self.cache_salt)

    def check_stream(self) -> None:
        """Raise `RequestError` for what does not go together with a stream, or without one."""
        if self.stream_options is not None and not self.stream:
            raise RequestError(
                "stream_options is only for stream=true; leave it out", param="stream_options"
            )
        if self.stream and self.prompt_logprobs is not None:
            raise RequestError(
                "prompt_logprobs is not streamed; set stream=false", param="prompt_logprobs"
            )

    def check_text(self) -> None:
        """Raise `RequestError` for a form of the text that there is not."""
        if self.spaces_between_special_tokens is False:
            raise RequestError(
                "spaces_between_special_tokens=false is not supported: the text is that of the "
                "tokens, with nothing added; leave it out",
                param="spaces_between_special_tokens",
            )

    def sampling(self, defaults: Mapping[str, Any], **further: Any) -> SamplingParams:
        """Over `defaults`, what was given; `further` over both. Raises `RequestError`."""
        given = {name: getattr(self, name) for name in SAMPLING}
        given["logit_bias"] = _by_id(self.logit_bias)
        values = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(**{**defaults, **values, **further})


def _by_id(bias: Mapping[str, float] | None) -> dict[int, float] | None:
    return None if bias is None else {_token_id(key): value for key, value in bias.items()}


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 11):
        raise RequestError(
            f"logit_bias has the key {key[:40]!r}; its keys are token ids", param="logit_bias"
        )
    return int(key)
