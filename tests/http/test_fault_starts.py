"""A model of a plugin behind the server: its engine's process knows it too, and says the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from jackfield.core.remote_llm import RemoteLLM
from jackfield.core.testing.scripted_folder import TURN

SCRIPT = {"a": ["scr", "ipted"], "q": list("nobody is disturbed")}


@pytest.fixture(scope="module")
def remote(scripted: Any, serve: Any) -> Iterator[Any]:
    folder = scripted(
        SCRIPT, template="{{ messages[0].content }}", generation={"eos_token_id": [TURN]}
    )
    with serve(folder, backend=RemoteLLM) as site, site.accompanied(prompt="q", ignore_eos=False):
        yield site


def test_the_plugin_is_known_everywhere(remote: Any) -> None:
    assert any(one.startswith("model Scripted") for one in remote.llm.summary.plugins)
    assert remote.everywhere("a") == [("scripted", "stop")] * 4


def test_ends_of_all_files_are_told_at_the_start(remote: Any) -> None:
    assert remote.llm.summary.eos_ids == [0, TURN]
    assert any("token ids 0, 1" in line for line in remote.llm.summary.lines())


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize(
    ("field", "param"),
    [
        (r'"user":"\ud800"', "user"), (r'"stop":"\ud800"', "stop"),
        (r'"bad_words":["\ud800"]', "bad_words"), ('"seed":9223372036854775808', "seed"),
        ('"prompt":[9223372036854775807],"messages":[]', None),
        ('"logit_bias":{"2147483647":1}', "logit_bias"), ('"priority":2147483648', "priority"),
    ],
)  # fmt: skip
def test_what_cannot_cross_to_the_engine_is_named(
    remote: Any, path: str, field: str, param: str | None, stream: str
) -> None:
    text = '{"prompt":"a","messages":[{"role":"user","content":"a"}],"stream":%s,%s}'
    head = {"content-type": "application/json"}
    found = remote.http.post(path, content=text % (stream, field), headers=head)
    expected = param or ("messages" if "chat" in path else "prompt")
    remote.refusal(found, expected)
