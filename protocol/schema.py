"""The notation in which the messages of the protocol are declared.

Owns wire types, the field specifier `since`, the decorators `message`, `stored` and `struct`, and the table of fields
that they store in a class. Must not know how a field is read or written (`protocol.codec`) or which messages exist
(`protocol.api`).

    @message(ApiKey.HEARTBEAT, versions=range(0, 5), flexible=4)
    class HeartbeatRequest:
        group_id: string
        generation_id: int32
        member_id: string
        group_instance_id: string | None = since(3, default=None)

One class represents all versions of a message. A wire type is an `Annotated` Python type: type checkers see `str` and
`int`, the codec sees the encoding. A list is an array, another `@struct` class is nested, `| None` may be null.

`since` declares what changed between versions. A field that some version lacks has a default, which is what the reader
of such a version returns. A field of a struct without `since` is in every version that has the struct. Fields are in
the order of the wire.

Invariants, checked when the fields of a class are first read: a field that some version lacks has a default; the tags
of one struct differ; the only mutable default is the empty list, and each object gets a new one.
"""

from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, TypeVar, Union, dataclass_transform, get_args, get_origin, overload
from uuid import UUID

from base.compiler import compile_function
from base.dataclass import dataclass

T = TypeVar("T")

NO_API: Final = -1
"""The API key of structures that are stored in a log instead of sent."""

Records = bytes | bytearray | memoryview
"""A record set, which the codec does not parse: decoded as a view into the frame, encoded by reference."""

ZERO_UUID: Final = UUID(int=0)
"""The protocol's value for "no id": uuids cannot be null."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A primitive wire type: its name, and its `struct` letter if all its values have the same size."""

    name: str
    letter: str = ""


int8 = Annotated[int, Wire("int8", "b")]
int16 = Annotated[int, Wire("int16", "h")]
uint16 = Annotated[int, Wire("uint16", "H")]
int32 = Annotated[int, Wire("int32", "i")]
uint32 = Annotated[int, Wire("uint32", "I")]
int64 = Annotated[int, Wire("int64", "q")]
float64 = Annotated[float, Wire("float64", "d")]
boolean = Annotated[bool, Wire("boolean", "?")]
uuid = Annotated[UUID, Wire("uuid")]
string = Annotated[str, Wire("string")]
bytes_ = Annotated[bytes, Wire("bytes")]
records_ = Annotated[Records, Wire("records")]


class _Required:
    """The default of a field that is in every version and that every caller must pass."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class Encoded(bytes):
    """A list element that is already encoded for the same version: see `protocol.codec.encode_element`."""


@dataclass(frozen=True, slots=True)
class _Since:
    """What `since` stores in the class body until the decorator collects it."""

    first: int
    until: int | None
    nullable: int | None
    tag: int | None
    ignorable: bool
    default: object
    takes_encoded: bool = False


@overload
def since(
    first: int,
    *,
    until: int | None = None,
    nullable: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    default: T,
) -> T: ...
@overload
def since(first: int, *, nullable: int) -> Any: ...
@overload
def since(first: int, *, takes_encoded: bool) -> Any: ...
def since(
    first: int,
    *,
    until: int | None = None,
    nullable: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    default: object = REQUIRED,
    takes_encoded: bool = False,
) -> Any:
    """Declare the history of a field: its `first` version, its last one (`until`), and when it became `nullable`.

    With `tag` the field is in the tagged section, and only if it differs from its default. A tagged struct is `None` if
    absent, and cannot be null otherwise unless it is declared `nullable`.

    A request field is `ignorable` if a version that lacks it may drop any value. Otherwise the writer rejects a value
    other than the default, so that part of a request is not lost silently. Response fields need no such mark: a client
    with an old version expects no newer field.

    A list of structs that `takes_encoded` may hold elements that are `Encoded`, so that elements which many responses
    share are encoded once.
    """
    return _Since(first, until, nullable, tag, ignorable, default, takes_encoded)


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field. Either `wire` or `struct` is set: the type of its value, or of its list's elements."""

    name: str
    wire: Wire | None
    struct: "type[Struct] | None"
    is_array: bool
    first: int
    last: int | None
    nullable: int | None
    tag: int | None
    ignorable: bool
    default: object
    takes_encoded: bool = False

    def is_in(self, version: int) -> bool:
        return self.first <= version and (self.last is None or version <= self.last)

    def is_nullable_in(self, version: int) -> bool:
        """Return whether `version` can carry null. An absent tagged struct is not written at all."""
        return self.nullable is not None and version >= self.nullable


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """Properties of a message as a whole. `flexible` is its first version with compact lengths and tagged fields."""

    api_key: int
    versions: range
    flexible: int | None
    is_request: bool

    def is_flexible_in(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


class Struct:
    """The base of declared classes: slots for the fields, a keyword constructor, `==` and `repr`."""

    __slots__ = ()
    __fields__: ClassVar[tuple[Field, ...]] = ()
    __message__: ClassVar[MessageInfo | None] = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: object) -> None:
        # Most of the 430 classes are never constructed in one process: the constructor is compiled on first use.
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__fields__)

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={_brief(getattr(self, field.name))}" for field in self.__fields__)
        return f"{type(self).__name__}({values})"


def message_info(cls: type) -> MessageInfo:
    """Return what `message` declared for a class.

    Raises:
        TypeError: the class is not a message.
    """
    info = cls.__message__ if issubclass(cls, Struct) else None
    if info is None:
        raise TypeError(f"{cls.__name__} is not a message")
    return info


def first_version(cls: type, name: str) -> int:
    """Return the first version that has the field `name` of a message or struct.

    Raises:
        KeyError: the class declares no such field.
    """
    assert issubclass(cls, Struct), cls
    return {field.name: field.first for field in cls.__fields__}[name]


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def struct(cls: type[T]) -> type[T]:
    """Declare a structure that messages nest."""
    return _declare(cls, None)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def message(api_key: int, *, versions: range, flexible: int | None) -> Callable[[type[T]], type[T]]:
    """Declare a request or a response (its name must end in that) and the versions that exist."""

    def declare(cls: type[T]) -> type[T]:
        if not cls.__name__.endswith(("Request", "Response")):
            raise TypeError(f"{cls.__name__}: the name of a message must end in Request or Response")
        return _declare(cls, MessageInfo(api_key, versions, flexible, cls.__name__.endswith("Request")))

    return declare


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def stored(*, versions: range, flexible: int | None) -> Callable[[type[T]], type[T]]:
    """Declare the key or value of a record in a coordinator's topic: the same notation without an API key."""

    def declare(cls: type[T]) -> type[T]:
        return _declare(cls, MessageInfo(NO_API, versions, flexible, is_request=False))

    return declare


def _declare(cls: type[T], info: MessageInfo | None) -> type[T]:
    """Return a class like `cls` with slots for its fields; the values assigned in its body become their defaults."""
    body = dict(vars(cls))
    annotations = body.pop("__annotations__", {})
    fields = _UnreadFields([(name, hint, body.pop(name, REQUIRED)) for name, hint in annotations.items()])
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body |= {"__slots__": tuple(annotations), "__fields__": fields, "__message__": info}
    declared: type[T] = type(cls.__name__, (Struct,), body)
    return declared


class _UnreadFields:
    """The fields of a class until they are first read: a broker that starts declares 300 classes and reads a few."""

    __slots__ = ("_declarations",)

    def __init__(self, declarations: Sequence[tuple[str, object, object]]) -> None:
        """Keep the name, the annotation and the assigned value of each field."""
        self._declarations = declarations

    def __get__(self, instance: object, owner: type[Struct]) -> tuple[Field, ...]:
        """Replace this object by the fields, and return them. Raises TypeError for an invalid declaration."""
        fields = tuple(_field(owner.__name__, *declaration) for declaration in self._declarations)
        tags = [field.tag for field in fields if field.tag is not None]
        if len(tags) != len(set(tags)):
            raise TypeError(f"{owner.__name__}: two fields have the same tag")
        owner.__fields__ = fields
        return fields


def _field(owner: str, name: str, hint: object, assigned: object) -> Field:
    if not isinstance(assigned, _Since):
        assigned = _Since(0, None, None, None, False, assigned)
    wire, nested, is_array, is_optional = _read_hint(owner, name, hint)
    nullable = assigned.first if assigned.nullable is None and is_optional else assigned.nullable
    if assigned.tag is not None and assigned.nullable is None and nested is not None and not is_array:
        nullable = None
    is_versioned = assigned.first > 0 or assigned.until is not None or assigned.tag is not None
    if is_versioned and assigned.default is REQUIRED:
        raise TypeError(f"{owner}.{name}: some version lacks the field, so it needs a default")
    if not is_optional and (nullable is not None or assigned.default is None):
        raise TypeError(f"{owner}.{name}: null needs `| None` in the annotation")
    if isinstance(assigned.default, list) and (assigned.default or is_optional):
        raise TypeError(f"{owner}.{name}: the default of a list must be [], or None if it is nullable")
    return Field(
        name=name,
        wire=wire,
        struct=nested,
        is_array=is_array,
        first=assigned.first,
        last=assigned.until,
        nullable=nullable,
        tag=assigned.tag,
        ignorable=assigned.ignorable,
        default=assigned.default,
        takes_encoded=assigned.takes_encoded,
    )


def _read_hint(owner: str, name: str, hint: Any) -> tuple[Wire | None, type[Struct] | None, bool, bool]:
    """Return the wire type or struct of an annotation, whether it is a list, and whether it may be None."""
    is_optional = is_array = False
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        is_optional = True
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is list:
        is_array = True
        (hint,) = get_args(hint)
    if get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], Wire):
        return hint.__metadata__[0], None, is_array, is_optional
    if isinstance(hint, type) and issubclass(hint, Struct):
        return None, hint, is_array, is_optional
    raise TypeError(f"{owner}.{name}: {hint!r} is neither a wire type nor a struct")


def _compile_constructor(cls: type[Struct]) -> Any:
    names: dict[str, object] = {}
    parameters, body = [], []
    for field in cls.__fields__:
        parameter = value = field.name
        if isinstance(field.default, list):
            parameter += "=None"
            value = f"[] if {field.name} is None else {field.name}"
        elif field.default is not REQUIRED:
            parameter += f"=default_of_{field.name}"
            names[f"default_of_{field.name}"] = field.default
        parameters.append(parameter)
        body.append(f"    self.{field.name} = {value}\n")
    source = f"def __init__({', '.join(['self, *', *parameters]) if parameters else 'self'}):\n"
    source += "".join(body) if body else "    pass\n"
    return compile_function("__init__", source, f"constructor of {cls.__name__}", names)


def _brief(value: object) -> str:
    """Return the repr of a value; for record sets, which may be megabytes, only the size."""
    return f"<{len(value)} bytes>" if isinstance(value, bytes | bytearray | memoryview) else repr(value)
