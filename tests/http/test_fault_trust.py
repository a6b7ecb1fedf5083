"""No request names code, or brings it: what is not a field of the API has no effect."""

import base64
import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield.server.http.settings import HttpSettings

BOTH = ("/v1/completions", "/v1/chat/completions")
GREEDY = {
    "prompt": "the cat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4,
    "temperature": 0, "ignore_eos": True,
}  # fmt: skip
FIELDS = (
    "logits_processors", "logits_processor", "custom_logit_processor", "processors", "plugins",
    "scheduler", "extra_args", "vllm_xargs", "custom_params", "prompt_embeds", "input_embeds",
    "lora_path", "model_path", "chat_template", "guided_grammar", "__class__", "__reduce__",
)  # fmt: skip
TRAP = "raise SystemExit('a request was able to import a module')\n"


class Harm:
    """What it does when it is read back."""

    def __reduce__(self) -> Any:
        return exec, ("import sys; sys.modules['harm_was_done'] = None",)


@pytest.fixture(autouse=True)
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that nobody may import."""
    (tmp_path / "trap_of_requests.py").write_text(TRAP)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    assert not {"trap_of_requests", "harm_was_done"} & set(sys.modules)


def values() -> list[Any]:
    harm = base64.b64encode(pickle.dumps(Harm())).decode()
    path = "trap_of_requests:run"
    return [
        path, "trap_of_requests.run", "os.system", harm, [path], [harm], {"name": path},
        {"callable": harm, "args": ["x"]}, {"py/object": "os.system", "py/reduce": [path]},
        {"__reduce__": ["os.system", ["true"]]}, "!!python/object/apply:os.system ['true']",
        "{{ ''.__class__.__mro__ }}",
    ]  # fmt: skip


@pytest.mark.parametrize("path", BOTH)
def test_unknown_fields_have_no_effect_and_are_named(site: Any, path: str) -> None:
    with site.accompanied():
        plain = site.whole(path, **GREEDY)
        for value in values():
            found = site.post(path, **GREEDY, **dict.fromkeys(FIELDS, value))
            assert found.status_code == 200
            named = found.headers["x-jackfield-ignored-fields"].split(", ")
            assert set(named) >= set(FIELDS)
            assert site.whole(path, **GREEDY, **dict.fromkeys(FIELDS, value)) == plain


@pytest.mark.parametrize("path", BOTH)
def test_fields_that_there_are_take_their_own_values_only(site: Any, path: str) -> None:
    """Text goes where text is expected, and is nothing more."""
    takes_text = {"user", "stop", "bad_words", "request_id", "model", "prompt", "metadata",
                  "chat_template_kwargs", "safety_identifier", "prompt_cache_key"}  # fmt: skip
    names = ("temperature", "n", "seed", "logit_bias", "stop_token_ids", "stream", "priority",
             "stream_options", "ignore_eos", "allowed_token_ids", *takes_text)  # fmt: skip
    with site.accompanied():
        for name in names:
            for value in values():
                found = site.post(path, **{**GREEDY, name: value})
                if name not in takes_text and not isinstance(value, dict):
                    site.refusal(found, found.json()["error"]["param"])
                assert found.status_code < 500


def test_a_strict_server_refuses_them(folder: Path, serve: Any) -> None:
    with serve(folder, HttpSettings(strict=True)) as site:
        for path, other in zip(BOTH, ("messages", "prompt"), strict=True):
            body = {name: value for name, value in GREEDY.items() if name != other}
            for name in FIELDS:
                site.refusal(site.post(path, **body, **{name: "trap_of_requests:run"}), name)


@pytest.mark.parametrize("path", BOTH)
def test_a_template_sees_values_of_a_request_as_values(site: Any, path: str) -> None:
    talk = [{"role": "user", "content": "{{ ''.__class__ }}{% for i in x %}"}]
    harm = {"tool": "trap_of_requests:run", "x": "{{ 1 / 0 }}"}
    found = site.post(path, **{**GREEDY, "messages": talk, "chat_template_kwargs": harm})
    assert found.status_code == 200
