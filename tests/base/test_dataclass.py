"""Classes of values, each compared with its twin: the same class, declared with the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from base import dataclass as module
from base.dataclass import dataclass

T = TypeVar("T")

OPTIONS = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"slots": True, "eq": False},
    {"frozen": True, "slots": True, "eq": False},
]


def _declare(decorator: Callable[..., Any], options: dict[str, bool]) -> dict[str, Any]:
    """Return classes of every shape in use, with this decorator."""

    @decorator(**options)
    class Empty:
        pass

    @decorator(**options)
    class One:
        value: int

    @decorator(**options)
    class Full:
        """With a docstring."""

        LIMIT: ClassVar[int] = 7
        name: str
        count: int = 3
        names: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False)

        @property
        def doubled(self) -> int:
            return 2 * self.count

    @decorator(**options)
    class Derived(Full):
        more: float = 0.5
        count: int = 4

    @decorator(**options)
    class Generalised(Generic[T]):
        value: T

    @decorator(**options)
    class Shown:
        value: int

        def __repr__(self) -> str:
            return "shown"

        def __hash__(self) -> int:
            return 5

    @decorator(**options)
    class Finished:
        value: int
        half: int = field(init=False)
        seen: list[int] = field(init=False, default_factory=list)

        def __post_init__(self) -> None:
            object.__setattr__(self, "half", self.value // 2)

    return {cls.__name__: cls for cls in (Empty, One, Full, Derived, Generalised, Shown, Finished)}


ARGUMENTS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Empty", (), {}),
    ("One", (1,), {}),
    ("One", (), {"value": 2}),
    ("Full", ("a",), {}),
    ("Full", ("a", 1, ["b"], "c"), {}),
    ("Full", ("a",), {"names": ["c"]}),
    ("Derived", ("a",), {"more": 2.0}),
    ("Generalised", ("a",), {}),
    ("Shown", (1,), {}),
    ("Finished", (9,), {}),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("name", "values", "named"), ARGUMENTS)
def test_instances_behave_like_those_of_the_standard_library(
    options: dict[str, bool], name: str, values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    ours, theirs = _declare(dataclass, options)[name], _declare(dataclasses.dataclass, options)[name]
    mine, standard = ours(*values, **named), theirs(*values, **named)
    fields = [one.name for one in dataclasses.fields(standard)]
    assert [one.name for one in dataclasses.fields(mine)] == fields
    assert [getattr(mine, one) for one in fields] == [getattr(standard, one) for one in fields]
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__qualname__ == theirs.__qualname__
    if name == "Full":
        assert ours.__doc__ == "With a docstring."
    assert hasattr(mine, "__dict__") == hasattr(standard, "__dict__")
    if options.get("eq", True) or name == "Shown":
        assert repr(mine) == repr(standard)
        assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert (mine == ours(*values, **named)) == (standard == theirs(*values, **named))
    assert mine != standard
    assert dataclasses.asdict(mine) == dataclasses.asdict(standard)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_replaced_field_changes_equality_unless_it_is_not_compared(options: dict[str, bool]) -> None:
    for decorator in (dataclass, dataclasses.dataclass):
        one = _declare(decorator, options)["Full"]("a")
        assert dataclasses.replace(one, count=9).count == 9
        if options.get("eq", True):
            assert dataclasses.replace(one, count=9) != one
            assert dataclasses.replace(one, note="x") == one


def test_frozen_instances_reject_changes_and_can_be_hashed() -> None:
    full = _declare(dataclass, {"frozen": True, "slots": True})["Finished"](4)
    with pytest.raises(FrozenInstanceError, match="'value'"):
        full.value = 5
    with pytest.raises(FrozenInstanceError, match="'value'"):
        del full.value
    one = _declare(dataclass, {"frozen": True})["One"]
    assert len({one(1), one(1), one(2)}) == 2


@dataclass(frozen=True, slots=True)
class Sent:
    """One that another process receives."""

    name: str
    sizes: tuple[int, ...] = ()


def test_frozen_instances_can_be_pickled_and_copied() -> None:
    sent = Sent("a", (1, 2))
    assert pickle.loads(pickle.dumps(sent)) == copy.copy(sent) == sent


def test_an_instance_that_contains_itself_can_be_printed() -> None:
    full = _declare(dataclass, {})["Full"]("a")
    full.names.append(full)
    assert "..." in repr(full)


def test_a_class_is_compiled_at_its_first_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = module.compile_function

    def counted(name: str, source: str, label: str, names: dict[str, object]) -> object:
        compiled.append(label)
        return original(name, source, label, names)

    monkeypatch.setattr(module, "compile_function", counted)

    @dataclass(slots=True)
    class Point:
        x: int
        y: int = 0

    assert compiled == []
    assert [Point(1), Point(1, 2)] == [Point(x=1, y=0), Point(1, y=2)]
    assert compiled == ["constructor of Point"]


@pytest.mark.parametrize("values", [(), (1, 2, 3)])
def test_a_wrong_number_of_arguments_is_rejected_at_each_construction(values: tuple[int, ...]) -> None:
    @dataclass
    class Point:
        x: int
        y: int = 0

    for _ in range(2):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            Point(*values)


@pytest.mark.parametrize(
    ("assigned", "error"),
    [
        (field(default=1, repr=False), r"Odd\.value: field\(repr=False\) is not supported"),
        (field(kw_only=True), r"Odd\.value: field\(kw_only=True\) is not supported"),
        ([], r"Odd\.value: all objects would share \[\]"),
    ],
)
def test_unsupported_declarations_are_rejected(assigned: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        dataclass(type("Odd", (), {"__annotations__": {"value": int}, "value": assigned}))


def test_a_base_of_the_standard_library_is_rejected() -> None:
    base = dataclasses.make_dataclass("Base", ["value"])
    with pytest.raises(TypeError, match="its base Base is a dataclass of the standard library"):
        dataclass(type("Derived", (base,), {}))
