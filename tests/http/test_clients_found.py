"""What clients that others wrote found wrong, with the right values."""

from typing import Any

import pytest

from jackfield.server.http.settings import HttpSettings

TALK = [{"role": "user", "content": "hi"}]
POSTS = {
    "CompletionRequest": ("/v1/completions", {"prompt": "x"}),
    "ChatRequest": ("/v1/chat/completions", {"messages": TALK}),
}
COSTLY = {("n", 1024), ("best_of", 1024), ("best_of", 1), ("min_tokens", 2**31 - 1)}
"""Right values that take long here, or need another field."""


@pytest.fixture(scope="module")
def document(site: Any) -> dict[str, Any]:
    found: dict[str, Any] = site.http.get("/openapi.json").json()
    return found


@pytest.mark.parametrize(
    ("path", "body", "prompt_tokens"),
    [
        ("/v1/completions", {"prompt": [70.0, 71]}, 2),
        ("/v1/completions", {"prompt": [[70.0, 71.0]]}, 2),
        ("/v1/completions", {"prompt": [70], "n": 1.0, "top_k": 5.0, "stop_token_ids": [9.0]}, 1),
    ],
)
def test_whole_numbers_with_a_point_are_integers(
    site: Any, path: str, body: dict[str, Any], prompt_tokens: int
) -> None:
    found = site.post(path, max_tokens=2.0, ignore_eos=True, **body)
    assert found.status_code == 200, found.text
    usage = found.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt_tokens, 2)
    for wrong in ({"max_tokens": 2.5}, {"prompt": [70.5]}, {"prompt": [[[70.0]]]}):
        assert site.post(path, **{**body, **wrong}).status_code == 400
    assert site.post("/detokenize", tokens=[70.0]).json() == site.post(
        "/detokenize", tokens=[70]
    ).json()  # fmt: skip
    deep = b'{"prompt":' + b"[" * 900 + b"1.0" + b"]" * 900 + b"}"
    head = {"content-type": "application/json"}
    assert site.http.post(path, content=deep, headers=head).status_code == 400


@pytest.mark.parametrize("size", [257, 300])
def test_a_prompt_that_is_too_long_is_told_in_words_that_clients_look_for(
    site: Any, size: int
) -> None:
    """One client looks for the first words, another one for the last; neither reads the code."""
    found = site.post("/v1/completions", prompt=[70] * size, max_tokens=20)
    message = found.json()["error"]["message"]
    assert message.startswith("This model's maximum context length is 256 tokens.")
    assert "prompt is too long" in message
    assert f"it has {size};" in message


def test_the_limit_of_an_answer_is_refused_by_the_name_that_was_given(site: Any) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        for value in (0, 2**31):
            found = site.post("/v1/chat/completions", messages=TALK, **{name: value})
            error = found.json()["error"]
            assert (found.status_code, error["param"]) == (400, name)
            assert error["message"] == f"{name} must be between 1 and 2147483647"


def limits(schema: dict[str, Any]) -> list[tuple[str, Any, bool]]:
    """Values at the limits that are told of numbers, and beyond: field, value, whether right."""
    found = []
    for name, field in schema["properties"].items():
        for option in field.get("anyOf", [field]):
            step = 1 if option.get("type") == "integer" else 0.005
            for key, beyond in (("minimum", -step), ("maximum", step)):
                if key in option:
                    found += [(name, option[key], True), (name, option[key] + beyond, False)]
            if "exclusiveMinimum" in option:
                found.append((name, option["exclusiveMinimum"], False))
    return found


@pytest.mark.parametrize("kind", POSTS)
def test_the_limits_in_the_schema_are_those_of_the_server(
    site: Any, document: dict[str, Any], kind: str
) -> None:
    path, body = POSTS[kind]
    told = limits(document["components"]["schemas"][kind])
    assert {"temperature", "top_p", "top_k", "seed", "max_tokens"} <= {name for name, _, _ in told}
    wrong = []
    for name, value, right in told:
        if right and (name, value) in COSTLY:
            continue
        further = {"logprobs": True} if name == "top_logprobs" else {}
        fields = {"max_tokens": 1, **body, **further, name: value}
        if name in ("max_completion_tokens", "min_tokens"):
            del fields["max_tokens"]
        found = site.post(path, **fields)
        refusal = found.json().get("error")
        accepted = refusal is None or refusal["code"] == "context_length_exceeded"
        if accepted != right or not (accepted or refusal["param"] == name):
            wrong.append((name, value, found.text))
    assert wrong == []


@pytest.mark.parametrize("change", [{"stop": ""}, {"stop": [""]}, {"bad_words": [""]}])
def test_empty_words_are_refused_as_the_schema_says(
    site: Any, document: dict[str, Any], change: dict[str, Any]
) -> None:
    ((name, _),) = change.items()
    assert site.post("/v1/completions", prompt="x", **change).status_code == 400
    options = document["components"]["schemas"]["CompletionRequest"]["properties"][name]["anyOf"]
    words = [option.get("items", option) for option in options if option["type"] != "null"]
    assert all(word["minLength"] == 1 for word in words)


def test_every_part_of_a_path_is_described(document: dict[str, Any]) -> None:
    for path, name in (
        ("/v1/models/{model_id}", "model_id"),
        ("/debug/requests/{request_id}", "request_id"),
    ):
        (parameter,) = document["paths"][path]["get"]["parameters"]
        assert (parameter["name"], parameter["in"], parameter["required"]) == (name, "path", True)


def test_every_answer_is_described(site: Any, document: dict[str, Any]) -> None:
    """With its form, and with the header that all have."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            good = operation["responses"]["200"]
            assert all(media["schema"] for media in good["content"].values()), path
            assert good["headers"]["x-request-id"]["required"] is True
    content = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    kind = site.http.get("/metrics").headers["content-type"]
    assert [kind.partition(";")[0]] == list(content) == ["text/plain"]
    chat = document["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    assert set(chat) == {"application/json", "text/event-stream"}


def test_tokenize_takes_a_text_or_a_conversation(document: dict[str, Any]) -> None:
    forms = document["components"]["schemas"]["TokenizeRequest"]["oneOf"]
    assert [form["required"] for form in forms] == [["prompt"], ["messages"]]


def test_a_key_is_described_where_it_is_asked_for(
    folder: Any, serve: Any, document: dict[str, Any]
) -> None:
    assert "security" not in document
    with serve(folder, HttpSettings(needs_key=True)) as site:
        locked = site.http.get("/openapi.json").json()
    assert locked["security"] == [{"key": []}]
    assert locked["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert locked["paths"]["/health"]["get"]["security"] == []
    assert "security" not in locked["paths"]["/metrics"]["get"]
