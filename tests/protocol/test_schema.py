"""The notation: what a declaration becomes, and which declarations are refused."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from protocol.codec import decode, encode
from protocol.errors import Malformed
from protocol.messages.fetch import FetchResponse
from protocol.schema import (
    NO_API,
    REQUIRED,
    ZERO_UUID,
    boolean,
    bytes_,
    first_version,
    int32,
    message,
    message_info,
    records_,
    since,
    stored,
    string,
    struct,
    uuid,
)


@struct
class Item:
    name: string
    size: int32 = since(2, default=-1)


@message(99, versions=range(0, 5), flexible=4)
class SampleRequest:
    """A sample."""

    id: uuid = ZERO_UUID
    is_new: boolean = False
    items: list[Item] = since(1, until=3, default=[])
    names: list[string] | None = since(0, nullable=2)
    extra: Item | None = since(4, tag=7, default=None)
    note: string | None = since(4, tag=2, default=None)
    body: records_ | None = None


FIELDS: dict[str, Any] = {field.name: field for field in SampleRequest.__fields__}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "versions", "nullable_versions", "tag", "default"),
    [
        ("id", "01234", "", None, ZERO_UUID),
        ("is_new", "01234", "", None, False),
        ("items", "123", "", None, []),
        ("names", "01234", "234", None, REQUIRED),
        ("extra", "4", "", 7, None),
        ("note", "4", "4", 2, None),
        ("body", "01234", "01234", None, None),
    ],
)
def test_fields_differ_by_version(
    name: str, versions: str, nullable_versions: str, tag: int | None, default: object
) -> None:
    field = FIELDS[name]
    known = [v for v in range(5) if field.is_in(v)]
    assert "".join(map(str, known)) == versions
    assert "".join(str(v) for v in known if field.is_nullable_in(v)) == nullable_versions
    assert (field.tag, field.default) == (tag, default)


def test_message_has_its_versions() -> None:
    info = message_info(SampleRequest)
    assert (info.api_key, info.versions, info.flexible, info.is_request) == (99, range(0, 5), 4, True)
    assert [info.is_flexible_in(v) for v in info.versions] == [False] * 4 + [True]
    with pytest.raises(TypeError, match="Item is not a message"):
        message_info(Item)


@stored(versions=range(1, 3), flexible=2)
class SampleValue:
    name: string
    note: string = since(2, default="")


def test_stored_value_is_declared_and_encoded_like_a_message() -> None:
    info = message_info(SampleValue)
    assert (info.api_key, info.is_request) == (NO_API, False)
    value = SampleValue(name="a", note="b")
    assert encode(value, 2) == [b"\x02a\x02b\0"]
    assert decode(SampleValue, 1, b"\0\x01a") == SampleValue(name="a")
    with pytest.raises(Malformed, match="1 bytes too many"):
        decode(SampleValue, 1, b"\0\x01a\0")


def test_objects_have_slots_and_keep_the_docstring() -> None:
    sample = SampleRequest(names=None)
    assert not hasattr(sample, "__dict__")
    assert SampleRequest.__doc__ == "A sample."
    assert SampleRequest.__module__ == __name__
    with pytest.raises(AttributeError):
        sample.nonsense = 1  # type: ignore[attr-defined]


def test_a_default_list_is_fresh_for_every_object() -> None:
    one, other = SampleRequest(names=None), SampleRequest(names=None)
    one.items.append(Item(name="a"))
    assert other.items == []


def test_missing_and_unknown_fields_raise() -> None:
    with pytest.raises(TypeError, match="names"):
        SampleRequest()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nonsense"):
        SampleRequest(names=None, nonsense=1)  # type: ignore[call-arg]


def test_objects_are_equal_when_their_fields_are() -> None:
    assert SampleRequest(names=["a"], body=b"abc") == SampleRequest(names=["a"], body=memoryview(b"abc"))
    assert SampleRequest(names=["a"]) != SampleRequest(names=["b"])
    assert Item(name="a") != "a"  # type: ignore[comparison-overlap]
    with pytest.raises(TypeError):
        hash(Item(name="a"))


def test_repr_shows_values_but_only_the_size_of_bytes() -> None:
    sample = SampleRequest(id=UUID(int=1), names=["a"], extra=Item(name="b"), body=bytes(70_000))
    assert repr(sample) == (
        "SampleRequest(id=UUID('00000000-0000-0000-0000-000000000001'), is_new=False, items=[], names=['a'], "
        "extra=Item(name='b', size=-1), note=None, body=<70000 bytes>)"
    )


def _versioned_without_default() -> object:
    @struct
    class Wrong:
        a: int32 = since(1)  # type: ignore[call-overload]

    return Wrong.__fields__  # type: ignore[attr-defined]


def _tag_without_default() -> object:
    @struct
    class Wrong:
        a: int32 = since(0, tag=1)  # type: ignore[call-overload]

    return Wrong.__fields__  # type: ignore[attr-defined]


def _same_tag_twice() -> object:
    @struct
    class Wrong:
        a: int32 = since(0, tag=1, default=0)
        b: int32 = since(0, tag=1, default=0)

    return Wrong.__fields__  # type: ignore[attr-defined]


def _null_that_cannot_be() -> object:
    @struct
    class Wrong:
        a: string = None  # type: ignore[assignment]

    return Wrong.__fields__  # type: ignore[attr-defined]


def _list_with_something() -> object:
    @struct
    class Wrong:
        a: list[int32] = since(1, default=[1])

    return Wrong.__fields__  # type: ignore[attr-defined]


def _nullable_list_that_is_empty() -> object:
    @struct
    class Wrong:
        a: list[int32] | None = since(1, default=[])

    return Wrong.__fields__  # type: ignore[attr-defined]


def _plain_type() -> object:
    @struct
    class Wrong:
        a: int

    return Wrong.__fields__  # type: ignore[attr-defined]


def _union() -> object:
    @struct
    class Wrong:
        a: string | bytes_

    return Wrong.__fields__  # type: ignore[attr-defined]


def _name() -> object:
    @message(1, versions=range(0, 1), flexible=None)
    class Wrong:
        a: int32

    return Wrong.__fields__  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (_versioned_without_default, "Wrong.a: some version lacks the field"),
        (_tag_without_default, "Wrong.a: some version lacks the field"),
        (_same_tag_twice, "Wrong: two fields have the same tag"),
        (_null_that_cannot_be, "Wrong.a: null needs"),
        (_list_with_something, "Wrong.a: the default of a list must be \\[\\]"),
        (_nullable_list_that_is_empty, "Wrong.a: the default of a list must be \\[\\]"),
        (_plain_type, "Wrong.a: <class 'int'> is neither a wire type nor a struct"),
        (_union, "Wrong.a: .* is neither a wire type nor a struct"),
        (_name, "Wrong: the name of a message must end"),
    ],
)
def test_invalid_declarations_are_rejected(declare: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        declare()


def test_first_version_is_that_of_the_declared_field() -> None:
    assert [first_version(FetchResponse, name) for name in ("responses", "session_id", "node_endpoints")] == [0, 7, 16]
    with pytest.raises(KeyError, match="unknown_field"):
        first_version(FetchResponse, "unknown_field")
