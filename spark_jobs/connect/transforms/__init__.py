"""The built-in transforms and predicates, by the full names of their classes in Java.

Owns the names. Modules are imported only when a transform is used. Must not know how plug-ins are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_ROOM = "spark_jobs.connect.transforms"
_JAVA_ROOM = "org.apache.kafka.connect.transforms"
_SIDED: Mapping[str, str] = {
    "Cast": "cast",
    "ExtractField": "fields",
    "Flatten": "flatten",
    "HeaderFrom": "headers",
    "HoistField": "fields",
    "InsertField": "insert_field",
    "MaskField": "mask_field",
    "ReplaceField": "replace_field",
    "SetSchemaMetadata": "schema_metadata",
    "TimestampConverter": "timestamp_converter",
}
"""The modules of transforms that have a class for keys and one for values."""
_UNSIDED: Mapping[str, str] = {
    "DropHeaders": "headers",
    "Filter": "routers",
    "InsertHeader": "headers",
    "RegexRouter": "routers",
    "TimestampRouter": "routers",
    "ValueToKey": "fields",
}


def _transforms() -> Iterator[tuple[str, str]]:
    for name, module in _SIDED.items():
        for side in ("Key", "Value"):
            yield f"{_JAVA_ROOM}.{name}${side}", f"{_ROOM}.{module}:{name}Of{side}"
    for name, module in _UNSIDED.items():
        yield f"{_JAVA_ROOM}.{name}", f"{_ROOM}.{module}:{name}"


TRANSFORMATIONS: Mapping[str, str] = dict(sorted(_transforms()))
"""Module and class of each transform by its name in Java."""
PREDICATES: Mapping[str, str] = {
    f"{_JAVA_ROOM}.predicates.{name}": f"{_ROOM}.predicates:{name}"
    for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
}
"""Module and class of each predicate by its name in Java."""
