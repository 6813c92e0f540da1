"""Classes of values: `dataclass` as the standard library has it, with a constructor that is compiled at first use.

The standard decorator compiles up to six methods of each class when the class is declared. That took a quarter of the
start of a broker, which declares about 150 of them and constructs half. Here the constructor alone is generated, at the
first construction; the other methods are ordinary functions.

Owns the decorator. Type checkers read the standard declaration. `dataclasses.field`, `fields` and `replace` work with
these classes; options of `field` other than `default`, `default_factory`, `init` and `compare`, and those of the
decorator other than `frozen`, `slots` and `eq`, are rejected.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, make_dataclass
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

from base.compiler import compile_function

FIELDS = "__fields_by_name__"
"""The attribute of a class with its fields and their defaults, those of its bases first."""

Fields = Mapping[str, Any]
"""By name, what the class body assigns: a default, a `Field` of the standard library, or MISSING."""


def _dataclass(
    cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True
) -> type | Callable[[type], type]:
    """Return `cls` with the methods of a dataclass; without `cls`, a decorator.

    Raises:
        TypeError: An option of a field is not supported, or a base is a dataclass of the standard library.
    """
    if cls is None:
        return lambda cls: _declare(cls, frozen=frozen, slots=slots, eq=eq)
    return _declare(cls, frozen=frozen, slots=slots, eq=eq)


def _declare(cls: type, *, frozen: bool, slots: bool, eq: bool) -> type:
    own = {
        name: cls.__dict__.get(name, MISSING)
        for name, hint in cls.__annotations__.items()
        if not _is_class_variable(hint)
    }
    fields = {**_inherited(cls), **own}
    for name, assigned in own.items():
        if isinstance(assigned, Field):
            _check_options(cls, name, assigned)
        elif assigned.__class__.__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name}: all objects would share {assigned!r}, expected a default_factory")
    methods = _methods(fields, frozen=frozen, slots=slots, eq=eq, own=cls.__dict__)
    if slots:
        kept = {name: value for name, value in cls.__dict__.items() if name not in own and name not in _OF_INSTANCES}
        declared: type = type(cls)(cls.__name__, cls.__bases__, {**kept, **methods, "__slots__": tuple(own)})
        declared.__qualname__ = cls.__qualname__
    else:
        declared = cls
        for name, method in methods.items():
            setattr(cls, name, method)
        for name, assigned in own.items():
            if not isinstance(assigned, Field):
                continue
            if assigned.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, assigned.default)
    if "__init__" not in cls.__dict__:
        declared.__init__ = _first_constructor(declared, fields, frozen=frozen)  # type: ignore[misc]
    return declared


_OF_INSTANCES = frozenset({"__dict__", "__weakref__"})
_COMPARED_OPTIONS = {"repr": True, "hash": None, "kw_only": False}


def _is_class_variable(hint: object) -> bool:
    return str(hint).removeprefix("typing.").startswith("ClassVar")


def _inherited(cls: type) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        if FIELDS in base.__dict__:
            fields |= base.__dict__[FIELDS]
        elif "__dataclass_fields__" in base.__dict__:
            raise TypeError(f"{cls.__name__}: its base {base.__name__} is a dataclass of the standard library")
    return fields


def _check_options(cls: type, name: str, field: "Field[Any]") -> None:
    for option, expected in _COMPARED_OPTIONS.items():
        if getattr(field, option) not in (expected, MISSING):
            raise TypeError(f"{cls.__name__}.{name}: field({option}={getattr(field, option)!r}) is not supported")


def _methods(fields: Fields, *, frozen: bool, slots: bool, eq: bool, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes of the class but the constructor; those that the class defines itself are kept."""
    compared = [name for name, one in fields.items() if not isinstance(one, Field) or one.compare]
    values: Callable[[Any], object] = attrgetter(*compared) if compared else _no_values
    methods: dict[str, Any] = {"__repr__": _repr}
    if eq:
        methods["__eq__"] = _equality(values)
    methods = {name: method for name, method in methods.items() if name not in own}
    # A class that defines __eq__ has the entry None, which is no hash function of its own.
    if eq and own.get("__hash__") is None:
        methods["__hash__"] = _hash(values) if frozen else None
    if frozen:
        methods |= {"__setattr__": _reject_assignment, "__delattr__": _reject_deletion}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    parameters = tuple(name for name, one in fields.items() if not isinstance(one, Field) or one.init)
    return {**methods, "__match_args__": parameters, FIELDS: fields, "__dataclass_fields__": _StandardFields()}


def _no_values(instance: object) -> object:
    return ()


def _equality(values: Callable[[Any], object]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:  # noqa: N807 - its name in tracebacks
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], object]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807 - its name in tracebacks
        return hash(values(self))

    return __hash__


@recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in getattr(self, FIELDS))
    return f"{type(self).__qualname__}({values})"


def _reject_assignment(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _reject_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in getattr(self, FIELDS)]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(getattr(self, FIELDS), state, strict=True):
        object.__setattr__(self, name, value)


def _first_constructor(cls: Any, fields: Fields, *, frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, *values: object, **named: object) -> None:  # noqa: N807 - its name in tracebacks
        cls.__init__ = _compile_constructor(cls, fields, frozen=frozen)
        cls.__init__(self, *values, **named)

    return __init__


def _compile_constructor(cls: type, fields: Fields, *, frozen: bool) -> Any:
    names: dict[str, object] = {"assign_": object.__setattr__, "MISSING_": MISSING}
    parameters, body = ["self"], []
    for name, assigned in fields.items():
        default: object = assigned
        factory: object = MISSING
        is_parameter = True
        if isinstance(assigned, Field):
            default, factory, is_parameter = assigned.default, assigned.default_factory, assigned.init
        value = name
        if factory is not MISSING:
            names[f"new_{name}_"] = factory
            value = f"new_{name}_() if {name} is MISSING_ else {name}" if is_parameter else f"new_{name}_()"
            parameter = f"{name}=MISSING_"
        elif default is not MISSING:
            names[f"default_{name}_"] = default
            value = name if is_parameter else f"default_{name}_"
            parameter = f"{name}=default_{name}_"
        elif is_parameter:
            parameter = name
        else:
            continue  # __post_init__ assigns it
        if is_parameter:
            parameters.append(parameter)
        body.append(f"    assign_(self, {name!r}, {value})\n" if frozen else f"    self.{name} = {value}\n")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()\n")
    source = f"def __init__({', '.join(parameters)}):\n{''.join(body) or '    pass' + chr(10)}"
    return compile_function("__init__", source, f"constructor of {cls.__name__}", names)


class _StandardFields:
    """What the functions of the standard library read of a class; made when one of them asks for it."""

    def __get__(self, instance: object, owner: Any) -> dict[str, "Field[Any]"]:
        declared = next(cls for cls in owner.__mro__ if FIELDS in cls.__dict__)
        twin: Any = make_dataclass(
            owner.__name__,
            [
                (name, Any) if assigned is MISSING else (name, Any, assigned)
                for name, assigned in declared.__dict__[FIELDS].items()
            ],
        )
        fields: dict[str, Field[Any]] = twin.__dataclass_fields__
        declared.__dataclass_fields__ = fields
        return fields


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
