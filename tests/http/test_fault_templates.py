"""Chat templates that refuse, fail or never end: the caller is told, and nobody else notices."""

from collections.abc import Iterator
from typing import Any

import pytest

CHAT = "/v1/chat/completions"
SCRIPT = {"a": ["b"], "q": list("nobody is disturbed")}
PICKY = (
    "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
    "{{ raise_exception('no such role') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
)
BAD = {
    "never": "{{ raise_exception('never') }}",
    "nothing": "{{ messages[0].nothing.more }}",
    "division": "{{ 1 / 0 }}",
    "endless": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "doubling": "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(99) }}",
    "huge": "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
}
WORDS = {"never": "never", "endless": "turns of its loops", "doubling": "turns of its loops",
         "huge": "characters", "recursion": "recursion", "division": "division"}  # fmt: skip


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.fixture(scope="module")
def picky(scripted: Any, serve: Any) -> Iterator[Any]:
    with (
        serve(scripted(SCRIPT, template=PICKY)) as site,
        site.accompanied(prompt="q", ignore_eos=False),
    ):
        yield site


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([user("a"), user("a")], "roles must alternate"),
        ([{"role": "assistant", "content": "a"}], "roles must alternate"),
        ([{"role": "tool", "content": "a"}], "no such role"),
        ([{"role": "system", "content": "a"}, user("a")], "no such role"),
        ([user(5)], "content must be a string or a list"),
        ([user({"type": "text"})], "content must be a string or a list"),
        ([user(["a"])], "must be"), ([user([{"type": "text"}])], "text must be a string"),
    ],
)  # fmt: skip
def test_it_refuses_in_its_own_words(
    picky: Any, messages: Any, words: str, stream: bool
) -> None:
    found = picky.post(CHAT, messages=messages, stream=stream)
    assert words in picky.refusal(found, "messages")
    tokens = picky.post("/tokenize", messages=messages)
    assert words in picky.refusal(tokens, "messages")
    assert picky.whole(CHAT, messages=[user("a")]) == [("b", "stop")]


@pytest.mark.parametrize("role", ["wizard", "", None, 5, ["user"]])
def test_a_role_that_there_is_not(picky: Any, role: Any) -> None:
    found = picky.post(CHAT, messages=[{"role": role, "content": "a"}])
    picky.refusal(found, "messages[0].role")


def test_content_in_other_forms(picky: Any) -> None:
    parts = [{"type": "text", "text": "a"}]
    assert picky.whole(CHAT, messages=[user(parts)]) == [("b", "stop")]
    nothing = [user("a"), {"role": "assistant", "content": None}, user("a")]
    assert picky.whole(CHAT, messages=nothing) == [("b", "stop")]


@pytest.mark.parametrize("name", BAD)
def test_one_that_fails_for_everybody_is_told_at_the_start(
    scripted: Any, serve: Any, name: str
) -> None:
    with serve(scripted(SCRIPT, template=BAD[name])) as site:
        [notice] = site.llm.summary.notices
        assert "a plain chat fails" in notice and WORDS.get(name, "") in notice
        with site.accompanied(prompt="q", ignore_eos=False):
            found = site.post(CHAT, messages=[user("a")])
            assert WORDS.get(name, "") in site.refusal(found, "messages")
        assert site.whole("/v1/completions", prompt="a") == [("b", "stop")]


def test_without_a_template(scripted: Any, serve: Any) -> None:
    with serve(scripted(SCRIPT)) as site:
        found = site.post(CHAT, messages=[user("a")])
        assert "no chat template" in site.refusal(found, None)
        assert site.whole("/v1/completions", prompt="a") == [("b", "stop")]


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "self"])
def test_a_request_cannot_replace_what_a_template_is_given(picky: Any, name: str) -> None:
    found = picky.post(CHAT, messages=[user("a")], chat_template_kwargs={name: 1})
    picky.refusal(found, "chat_template_kwargs")


def test_a_template_of_a_request_is_not_used(picky: Any) -> None:
    found = picky.post(CHAT, messages=[user("a")], chat_template=BAD["endless"])
    assert found.json()["choices"][0]["message"]["content"] == "b"
    assert found.headers["x-jackfield-ignored-fields"] == "chat_template"
