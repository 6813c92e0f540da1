import traceback

import pytest

from base.compiler import compile_function


def test_function_sees_only_the_given_names() -> None:
    text = "def double(value):\n    return factor * value\n"
    double = compile_function("double", text, "a test", {"factor": 2})
    assert double(21) == 42
    with pytest.raises(NameError):
        compile_function("double", text, "a test", {})(21)


def test_given_names_are_not_changed() -> None:
    names: dict[str, object] = {}
    compile_function("nothing", "def nothing():\n    pass\n", "a test", names)
    assert names == {}


def test_tracebacks_show_the_line() -> None:
    fail = compile_function("fail", "def fail():\n    raise ValueError('here')\n", "where it is from", {})
    with pytest.raises(ValueError, match="here") as raised:
        fail()
    last = traceback.extract_tb(raised.tb)[-1]
    assert (last.filename, last.lineno, last.line) == ("<where it is from>", 2, "raise ValueError('here')")


def test_text_that_does_not_compile_names_its_label() -> None:
    with pytest.raises(SyntaxError) as raised:
        compile_function("f", "def f(:\n", "broken", {})
    assert raised.value.filename == "<broken>"
