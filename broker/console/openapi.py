"""The OpenAPI document of the console, derived from its table of resources and the types of their results.

Owns the translation of types to JSON Schema. Must not know any resource.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from broker.console.routes import INT64_MAX, Parameter, Resource

_SIMPLE: Mapping[object, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}
PROBLEM = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "What is wrong and what was expected."}},
    "required": ["error"],
    "additionalProperties": False,
}


def document(resources: Iterable[Resource], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the resources."""
    schemas: dict[str, Any] = {"Problem": PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for resource in resources:
        paths.setdefault(f"/api/v1{resource.path}", {})[resource.method.lower()] = _operation(resource, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Milena console",
            "version": version,
            "description": "Everything that the web console shows. Offsets are strings of decimal digits.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(resource: Resource, schemas: dict[str, Any]) -> dict[str, Any]:
    content_type = "application/x-ndjson" if resource.is_stream else "application/json"
    doc = resource.doc
    if resource.is_write:
        doc += " Only if console.write.enable is true."
    operation: dict[str, Any] = {
        "operationId": f"{resource.method.lower()}_{resource.serve.__name__}",
        "summary": doc,
        "parameters": [_parameter(one) for one in resource.parameters],
        "responses": {
            "200": {"description": doc, "content": {content_type: {"schema": schema_of(resource.result, schemas)}}},
            "default": {
                "description": "The request failed.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if resource.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of(resource.body, schemas)}},
        }
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.kind == "integer":
        schema["minimum"] = parameter.minimum
        if parameter.maximum < INT64_MAX:
            schema["maximum"] = parameter.maximum
    if parameter.kind == "string":
        schema["maxLength"] = parameter.length_max
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "path" if parameter.is_in_path else "query",
        "required": parameter.is_in_path or parameter.default is None,
        "description": parameter.doc,
        "schema": schema,
    }


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a type; those of typed dictionaries are added to `schemas` and referred to."""
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        if kind.__name__ not in schemas:
            schemas[kind.__name__] = {}  # for types that contain themselves
            schemas[kind.__name__] = _object(kind, schemas)
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, schemas) for each in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0], schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], schemas)}
    raise TypeError(f"{kind!r} has no JSON Schema")


def _object(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    described = {
        "type": "object",
        "properties": {name: schema_of(each, schemas) for name, each in hints.items()},
        "additionalProperties": False,
    }
    if required := sorted(kind.__required_keys__):
        described["required"] = required
    if kind.__doc__:
        described["description"] = " ".join(kind.__doc__.split())
    return described
