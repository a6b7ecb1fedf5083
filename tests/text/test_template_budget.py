"""Templates that never end, or write without end, are ended; others do not notice."""

import pytest

from jackfield.core.api.errors import RequestError
from jackfield.core.text.template import ChatTemplate
from jackfield.core.text.template_budget import MAX_TURNS, TURN

USER = {"role": "user", "content": "a"}
LOOP = "{% for i in range(99999) %}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (f"{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}", "turns of its loops"),
        ("{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
         "turns of its loops"),
        ("{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(99) }}",
         "turns of its loops"),
        (f"{LOOP}{{{{ 'x' * 9999 }}}}{{% endfor %}}", "longer than 67108864 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)  # fmt: skip
def test_it_is_ended(source: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        ChatTemplate(source).render([USER])
    assert caught.value.param == "messages"


def test_a_long_conversation_has_room() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert template.render([USER] * 5000) == "a" * 5000


def test_each_rendering_counts_for_itself() -> None:
    loop = f"{{% for i in range({MAX_TURNS - 1}) %}}"
    template = ChatTemplate(loop + "{% if i < 3 %}x{% endif %}{% endfor %}")
    assert [template.render([USER]) for _ in range(2)] == ["xxx", "xxx"]


def test_nobody_takes_the_place_of_what_counts() -> None:
    source = f"{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}"
    with pytest.raises(RequestError, match="turns of its loops"):
        ChatTemplate(source).render([USER], **{TURN: "x"})
