from struct import pack, unpack_from
from typing import Any

from protocol.schema import ZERO_UUID, int16, int32, since, stored, string
from protocol.source import SHORT_LIST, Source, literal, plan


@stored(versions=range(4), flexible=2)
class Sample:
    always: int32
    second: string = since(2, tag=1, default="")
    gone: int16 = since(0, until=1, default=0)
    first: int32 = since(2, tag=0, default=7)


def names(fields: list[Any]) -> list[str]:
    return [field.name for field in fields]


def test_plan_groups_fields_by_their_use_in_a_version() -> None:
    old, new = plan(Sample, 1), plan(Sample, 3)
    assert (names(old.untagged), names(old.tagged), names(old.absent)) == (["always", "gone"], [], ["second", "first"])
    assert (names(new.untagged), names(new.tagged), names(new.absent)) == (["always"], ["first", "second"], ["gone"])


def test_literals_evaluate_to_their_value() -> None:
    for value in (0, -1, "", "it's", None, [], True, ZERO_UUID):
        assert eval(literal(value), {"ZERO_UUID": ZERO_UUID}) == value


def test_blocks_indent_what_is_added_inside() -> None:
    source = Source({})
    with source.block("def f(a):"):
        with source.block("if a:"):
            source.add("a = 1", "a += 1")
        source.add("return a")
    assert source.text() == "def f(a):\n    if a:\n        a = 1\n        a += 1\n    return a\n"


def test_layouts_are_names_of_struct_functions() -> None:
    known: dict[str, Any] = {}
    source = Source(known)
    assert known[source.layout("pack", "hi?")](1, 2, True) == pack(">hi?", 1, 2, True)
    assert known[source.layout("unpack_from", "q")](bytes(7) + b"\x05") == (5,)


def test_lists_have_a_layout_for_each_short_length() -> None:
    known: dict[str, Any] = {}
    table = known[Source(known).layouts("pack", "i")]
    assert len(table) == SHORT_LIST + 1
    for size, write in enumerate(table):
        assert unpack_from(f">{size}i", write(*range(size))) == tuple(range(size))
