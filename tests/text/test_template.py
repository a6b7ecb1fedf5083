"""Chat templates, against the reference library, and what happens when they fail."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from jackfield.core.api.errors import RequestError, TokenizerError
from jackfield.core.text.template import ChatTemplate

FILES = sorted((Path(__file__).parent / "templates").glob("*.jinja"))
TEMPLATES = {path.stem: path.read_text("utf-8") for path in FILES}
TOKENS = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
Message = dict[str, Any]


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, **fields: Any) -> Message:
    return {"role": "assistant", "content": content, **fields}


SYSTEM = {"role": "system", "content": "Sei höflich — <b>&'\"\n"}
CALL = {"id": "1", "type": "function", "function": {"name": "wetter", "arguments": {"ort": "Köln"}}}
RESULT = {"role": "tool", "content": "12 °C", "tool_call_id": "1"}
TOOL = {"type": "function", "function": {"name": "wetter", "description": "<é> & 'x'"}}
CHATS = {
    "one": [user("Hi 👩‍👩‍👧")],
    "turns": [SYSTEM, user(" a \n"), assistant("日本語\n"), user("b")],
    "thought": [user("a"), assistant("<think>\nhm\n</think>\n\nyes"), user("b"), assistant("c")],
    "reasoning": [user("a"), assistant("c", reasoning="why"), assistant("d", thinking="so")],
    "tools": [user("a"), assistant(None, tool_calls=[CALL]), RESULT, RESULT, assistant("ok")],
}
OPTIONS: list[dict[str, Any]] = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": True, "tools": [TOOL], "enable_thinking": True},
    {"add_generation_prompt": True, "enable_thinking": False, "date_string": "today"},
]


@pytest.fixture(scope="module")
def reference(
    byte_level_backend: Callable[[], tokenizers.Tokenizer],
) -> Callable[..., str]:
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=byte_level_backend(), **TOKENS
    )

    def render(template: str, chat: list[Message], **options: Any) -> str:
        text = tokenizer.apply_chat_template(
            chat, chat_template=template, tokenize=False, **options
        )
        assert isinstance(text, str)
        return text

    return render


def ours(template: str) -> ChatTemplate:
    return ChatTemplate(template, special_tokens=TOKENS)


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - {"alternating"}))
def test_equals_the_reference(reference: Callable[..., str], name: str, chat: str) -> None:
    template = ours(TEMPLATES[name])
    for options in OPTIONS:
        try:
            expected = reference(TEMPLATES[name], CHATS[chat], **options)
        except Exception:
            with pytest.raises(RequestError):
                template.render(CHATS[chat], **options)
        else:
            assert template.render(CHATS[chat], **options) == expected


@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - {"alternating"}))
@pytest.mark.parametrize("end", ["The answer is ", "x\n", "plain", "<think>\nhm"])
def test_continued_message_equals_the_reference(
    reference: Callable[..., str], name: str, end: str
) -> None:
    chat = [SYSTEM, user("a"), assistant(end)]
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    text = ours(TEMPLATES[name]).render(chat, **options)
    assert text == reference(TEMPLATES[name], chat, **options)
    assert text.rstrip().endswith(end.strip())


def test_continued_list_of_parts(reference: Callable[..., str]) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    chat = [user("a"), assistant(parts)]
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    text = ours(TEMPLATES["headers"]).render(chat, **options)
    assert text == reference(TEMPLATES["headers"], chat, **options)
    assert text.endswith("one two")
    assert parts[-1]["text"] == "two"


@pytest.mark.parametrize(
    ("chat", "options", "words"),
    [
        ([user("a"), assistant("b")], {"add_generation_prompt": True}, "only one of them"),
        ([user("a"), assistant(None)], {}, "last message with content"),
        ([user("a"), assistant("b </think>")], {}, "whole last message"),
    ],
)
def test_message_that_cannot_be_continued(
    chat: list[Message], options: dict[str, Any], words: str
) -> None:
    options = {"add_generation_prompt": False, "continue_final_message": True} | options
    with pytest.raises(RequestError, match=words):
        ours("{{ messages[-1].content.replace('b', '') }}").render(chat, **options)


def test_parts_reach_a_template_that_loops_over_them(reference: Callable[..., str]) -> None:
    chat = [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    text = ours(TEMPLATES["headers"]).render(chat)
    assert text == reference(TEMPLATES["headers"], chat, add_generation_prompt=True)


@pytest.mark.parametrize("loop", ["message['content']", "message.content", "content | list"])
def test_loops_over_content_are_recognised(loop: str) -> None:
    source = (
        "{% for message in messages %}{% set content = message.content %}"
        f"{{% for part in {loop} %}}[{{{{ part.text }}}}]{{% endfor %}}{{% endfor %}}"
    )
    chat = [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    assert ours(source).render(chat) == "[a][b]"


def test_parts_become_one_text_for_other_templates() -> None:
    chat = [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    assert "user\na\nb<|im_end|>" in ours(TEMPLATES["chatml"]).render(chat)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "non-empty list"),
        ("hi", "non-empty list"),
        (None, "non-empty list"),
        (["hi"], r"messages\[0\] must be an object"),
        ([user("a"), {"content": "x"}], r"messages\[1\].role"),
        ([{"role": "", "content": "x"}], r"messages\[0\].role"),
        ([user(3)], r"messages\[0\].content must be a string or a list"),
        ([user([{"type": "image_url"}])], r"messages\[0\].content\[0\] must be .*text only"),
        ([user([{"type": "text"}])], r"messages\[0\].content\[0\].text must be a string"),
    ],
)
def test_malformed_messages_are_refused(messages: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        ours(TEMPLATES["chatml"]).render(messages)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (TEMPLATES["alternating"], "roles must alternate user/assistant"),
        ("{{ messages[0].nothing.more }}", "no attribute 'nothing'"),
        ("{{ unknown() }}", "'unknown' is undefined"),
        ("{{ messages[0]['content'] + 1 }}", "concatenate str"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% for i in range(10000000) %}{% endfor %}", "(?i)range too big"),
        ("{{ messages.append(1) }}", "may not read 'append' of a list"),
        ("{% include 'x' %}", "no loader"),
    ],
)
def test_failing_template_speaks_in_its_own_words(source: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        ours(source).render([user("a"), user("b")])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "expression",
    [
        "messages.__class__",
        "messages['__class__']",
        "messages | attr('__class__')",
        "''.__class__.__mro__",
        "raise_exception.__globals__",
        "strftime_now.__closure__",
        "cycler.__init__.__globals__",
        "'{0.__class__}'.format(messages)",
    ],
)
def test_sandbox_refuses_private_attributes(expression: str) -> None:
    with pytest.raises(RequestError, match=r"may not read '__\w+__'"):
        ours(f"{{{{ {expression} }}}}").render([user("a")])


def test_template_that_does_not_compile_is_named() -> None:
    with pytest.raises(TokenizerError, match="'default' does not compile, line 2"):
        ours("a\n{% if %}")
    with pytest.raises(TokenizerError, match="No filter named 'nosuch'"):
        ours("{{ 1 | nosuch }}")


def test_current_time_comes_from_outside() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2024, 7, 26))
    assert template.render([user("a")]) == "26 Jul 2024"


def test_variables_overrule_special_tokens_but_not_messages() -> None:
    assert ours("{{ bos_token }}").render([user("a")], bos_token="B") == "B"
    with pytest.raises(RequestError, match="must not set 'messages'"):
        ours("{{ bos_token }}").render([user("a")], messages=[])


def test_model_without_a_default_template() -> None:
    template = ChatTemplate({"rag": "x", "tool_use": "t"})
    assert template.render([user("a")], tools=[]) == "t"
    with pytest.raises(RequestError, match="only rag, tool_use"):
        template.render([user("a")])


def test_callers_messages_stay_as_they_are() -> None:
    chat = [user("a"), assistant("b", tool_calls=None)]
    copy = [dict(message) for message in chat]
    ours(TEMPLATES["chatml"]).render(chat, add_generation_prompt=False, continue_final_message=True)
    assert chat == copy


def test_a_template_that_fails_for_everybody_says_so() -> None:
    assert ChatTemplate("{{ messages[0].content }}").trial() is None
    complaint = ChatTemplate("{{ raise_exception('never') }}").trial()
    assert complaint is not None and "never" in complaint
