"""Topic names and regular expressions of command lines."""

import pytest

from tools.base.command_line import UsageError
from tools.base.topic_patterns import topic_expression, topic_pattern


@pytest.mark.parametrize(
    ("text", "expression"),
    [("a", "a"), ("a,b", "a|b"), (" a , b.* ", "a|b.*"), ("'a.*'", "a.*"), ('"a"', "a"), ("", "")],
)
def test_lists_become_regular_expressions(text: str, expression: str) -> None:
    assert topic_expression(text) == expression
    assert topic_pattern(text).pattern == expression


def test_invalid_expression_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"a\(b is an invalid regex"):
        topic_pattern("a(b")
