"""invoke, batch, stream with usage, logprobs, a prompt that is too long recognised"""

from given import LONG, MODEL, URL, raises
from langchain_core.exceptions import ContextOverflowError
from langchain_openai import ChatOpenAI
from openai import BadRequestError

QUESTION = "What is the capital of France?"
chat = ChatOpenAI(
    base_url=f"{URL}/v1", api_key="none", model=MODEL, temperature=0, max_completion_tokens=12,
    stream_usage=True, max_retries=0,
)  # fmt: skip

whole = chat.invoke(QUESTION)
assert "Paris" in whole.content, whole
counts = whole.usage_metadata
assert counts["total_tokens"] == counts["input_tokens"] + counts["output_tokens"]
assert whole.response_metadata["finish_reason"] in ("stop", "length")
assert whole.response_metadata["model_name"] == MODEL

total = None
for chunk in chat.stream(QUESTION):
    total = chunk if total is None else total + chunk
assert total.content == whole.content
for name in ("input_tokens", "output_tokens", "total_tokens"):
    assert total.usage_metadata[name] == counts[name]

both = chat.batch([QUESTION, "What is the capital of Japan?"])
assert "Paris" in both[0].content and "Tokyo" in both[1].content, both

scored = chat.bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
entries = scored.response_metadata["logprobs"]["content"]
assert all(len(entry["top_logprobs"]) == 2 for entry in entries)

over = raises(ContextOverflowError, chat.invoke, LONG)
assert isinstance(over, BadRequestError)
wrong = raises(BadRequestError, chat.bind(temperature=-1).invoke, QUESTION)
assert not isinstance(wrong, ContextOverflowError)
