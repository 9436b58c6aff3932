"""Filling in a form: a plain value that a JSON schema lets pass."""

from collections.abc import Mapping
from typing import Any

# Of the types that need nothing more than a value.
PLAIN: dict[object, object] = {"boolean": False, "string": "-", "null": None}


def fill(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> object:
    """Return a value for a schema: what it asks for and no more. root: where references lead."""
    root = root or schema
    if reference := schema.get("$ref"):
        schema = root["$defs"][str(reference).rpartition("/")[2]]
    for name in ("anyOf", "oneOf"):
        if choices := schema.get(name):
            schema = choices[0]
    for name in ("default", "const"):
        if name in schema:
            return schema[name]
    if "enum" in schema:
        return schema["enum"][0]
    return _fill_type(schema, root)


def _fill_type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> object:
    match schema.get("type", "object"):
        case "object":
            properties = schema.get("properties", {})
            return {name: fill(properties[name], root) for name in schema.get("required", ())}
        case "array":
            return [fill(schema["items"], root)] * int(schema.get("minItems", 0))
        case "integer" | "number":
            return schema.get("minimum", 0)
        case other:
            return PLAIN.get(other)
