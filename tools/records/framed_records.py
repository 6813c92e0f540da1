"""The JSON that Kafka's tools print for the fields of stored records. Must not know which types exist."""

import math
from base64 import b64encode
from decimal import Decimal
from typing import Any, Final

from protocol.ids import id_text
from protocol.schema import Field, Struct
from tools.base.java_names import json_text

_PLAIN_EXPONENTS: Final = range(-3, 7)  # outside these limits Java prints a double with an exponent


def fields_json(fields: Struct, version: int) -> str:
    """Return the fields of `version` under the names of Kafka's schemas; tagged ones unless they have the default."""
    shown = (
        f'"{_camel_case(field.name)}":{_field_json(field, getattr(fields, field.name), version)}'
        for field in fields.__fields__
        if field.is_in(version) and not (field.tag is not None and getattr(fields, field.name) == field.default)
    )
    return f"{{{','.join(shown)}}}"


def _field_json(field: Field, value: Any, version: int) -> str:
    if value is None:
        return "null"
    if field.is_array:
        return f"[{','.join(_element_json(field, element, version) for element in value)}]"
    return _element_json(field, value, version)


def _element_json(field: Field, value: Any, version: int) -> str:
    if field.wire is None:
        return fields_json(value, version)
    if field.wire.name == "uuid":
        return json_text(id_text(value))
    if field.wire.name == "bytes":
        return json_text(b64encode(value).decode())
    if field.wire.name == "float64":
        return _double_json(value)
    return json_text(value)


def _double_json(value: float) -> str:
    """Return the text of a double as Java prints it."""
    if not math.isfinite(value):
        return json_text("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    exponent = Decimal(repr(value)).adjusted()
    if value == 0 or exponent in _PLAIN_EXPONENTS:
        return repr(value)
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent}"


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
