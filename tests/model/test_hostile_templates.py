"""Chat templates are programs of somebody else: they end in time and memory, and reach nothing of this process."""

import resource
import sys

import pytest

from unmask.errors import UnmaskError
from unmask.model.chat_template import ChatTemplate

CHAT = [{"role": "user", "content": "hello"}]
LOOP = "{% for i in range(90000) %}"
HOSTILE = {
    "nested loops": LOOP * 2 + "{% endfor %}{% endfor %}",
    "a silent loop": LOOP * 3 + "{% endfor %}" * 3,
    "a text that doubles": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a long text": "{{ 'a' * 10 ** 10 }}",
    "a wide text": "{{ 'a'|center(10000000000) }}",
    "a wide number": "{{ '%9999999999d' % 1 }}",
    "a wide format": "{{ '{:>9999999999}'.format(1) }}",
    "a large power": "{{ 9 ** (9 ** 9) }}",
    "a large power of a variable": "{% set n = messages|length + 8 %}{{ n ** (n ** n) }}",
    "growing numbers": "{% set n = namespace(x=9) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "a long list": "{{ (range(99999)|list * 99999)|length }}",
    "quadratic work": "{{ range(99999)|select('in', range(99999)|list)|list|length }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "deep expressions": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep blocks": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "indentation": "{{ messages|tojson(indent=9999999999) }}",
    "attributes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__['os'].system('exit 3') }}",
    "a file": "{% include '/etc/passwd' %}",
    "an import": "{% import 'os' as os %}{{ os.getcwd() }}",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_template_is_one_sentence(case: str) -> None:
    tracer, limit = sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(UnmaskError) as caught:
        ChatTemplate(HOSTILE[case], {}, "the template").render(CHAT)
    assert "\n" not in str(caught.value)
    assert sys.gettrace() is tracer
    assert resource.getrlimit(resource.RLIMIT_AS) == limit


def test_a_long_chat_is_rendered() -> None:
    template = (
        "{% for m in messages %}<{{ m.role }}>{% for c in m.content[:5] %}{{ c }}{% endfor %}{% endfor %}"
    )
    text = ChatTemplate(template, {}, "the template").render(CHAT * 10_000)
    assert text == "<user>hello" * 10_000
