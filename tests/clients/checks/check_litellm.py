"""two providers, chats, completions, streams, usage, context and key errors mapped"""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from given import KEYED_URL, LONG, MODEL, URL, raises

TALK = [{"role": "user", "content": "What is the capital of France?"}]
AT = {"api_base": f"{URL}/v1", "api_key": "none", "temperature": 0, "max_tokens": 12}

for provider in ("openai", "hosted_vllm"):
    name = f"{provider}/{MODEL}"
    whole = litellm.completion(model=name, messages=TALK, **AT)
    text = whole.choices[0].message.content
    assert "Paris" in text, text
    assert 0 < whole.usage.completion_tokens <= 12
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(
        litellm.completion(
            model=name, messages=TALK, stream=True, stream_options={"include_usage": True}, **AT
        )
    )
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == text
    counted = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    assert counted[-1].completion_tokens == whole.usage.completion_tokens
    over = raises(
        litellm.ContextWindowExceededError, litellm.completion, model=name,
        messages=[{"role": "user", "content": LONG}], **AT,
    )  # fmt: skip
    assert over.status_code == 400
    bad = raises(
        litellm.BadRequestError, litellm.completion, model=name, messages=TALK,
        **{**AT, "temperature": -1},
    )  # fmt: skip
    assert not isinstance(bad, litellm.ContextWindowExceededError)
    raises(
        litellm.AuthenticationError, litellm.completion, model=name, messages=TALK,
        **{**AT, "api_base": f"{KEYED_URL}/v1"},
    )  # fmt: skip
    raises(
        litellm.NotFoundError, litellm.completion, model=f"{provider}/none", messages=TALK, **AT
    )

whole = litellm.text_completion(model=f"text-completion-openai/{MODEL}", prompt="1, 2, 3, 4,", **AT)
assert whole.choices[0].text.startswith(" 5, 6"), whole.choices[0].text
assert whole.usage.completion_tokens == 12
