"""The tools of a request: values, and the rules for names and parameter schemas."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from demo.chat_messages import NAME
from demo.json_field import JsonField
from demo.refusal import Refusal, invalid_type, invalid_value

MAX_TOOLS = 128
MAX_DESCRIPTION_CHARS = 1024
MAX_SCHEMA_DEPTH = 50
SCHEMA_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
# Members of a schema that hold schemas by name, in a list, or alone.
NAMED_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties")
LISTED_SCHEMAS = ("anyOf", "allOf", "oneOf", "prefixItems")
SINGLE_SCHEMAS = ("items", "additionalProperties", "not")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool that the answer may call. `wire` is the tool as it was sent."""

    name: str
    wire: dict[str, object]
    parameters: dict[str, object] = field(default_factory=dict)


def parse_tools(body: JsonField) -> tuple[OfferedTool, ...]:
    """Return the tools in order; none if the member is absent or null.

    Raises Refusal if one is not allowed, two have one name, or something that needs tools is set
    without them.
    """
    field = body.get_set("tools")
    if field is None:
        _refuse_without_tools(body)
        return ()
    tools = tuple(_parse_tool(item) for item in field.items(max_items=MAX_TOOLS))
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise invalid_value(field.path, f"tool names must be unique, '{name}' is not")
    if choice := body.get_set("tool_choice"):
        _check_choice(choice, names)
    if parallel := body.get_set("parallel_tool_calls"):
        parallel.flag()
    return tools


def _refuse_without_tools(body: JsonField) -> None:
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get_set(name):
            raise Refusal(
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.",
                param=name,
            )


def _parse_tool(field: JsonField) -> OfferedTool:
    field.check_keys({"type", "function"})
    field.require("type").choice({"function"})
    function = field.require("function")
    function.check_keys({"name", "description", "parameters", "strict"})
    name = function.require("name").text(pattern=NAME)
    if description := function.get_set("description"):
        description.text(max_chars=MAX_DESCRIPTION_CHARS)
    if strict := function.get_set("strict"):
        strict.flag()
    schema: dict[str, object] = {}
    if parameters := function.get_set("parameters"):
        schema = _check_parameters(parameters, name)
    return OfferedTool(name=name, wire=field.members(), parameters=schema)


def _check_parameters(field: JsonField, name: str) -> dict[str, object]:
    schema = field.members()
    # No members at all stand for a function without parameters.
    if schema and schema.get("type") != "object":
        raise _bad_schema(
            field, name, f"schema must be of 'type: \"object\"', got {schema.get('type')!r}"
        )
    for problem in _find_problems(schema):
        raise _bad_schema(field, name, problem)
    return schema


def _find_problems(schema: object, depth: int = 0) -> Iterator[str]:
    """Yield what is wrong in a schema and in those inside it."""
    if depth > MAX_SCHEMA_DEPTH:
        yield f"more than {MAX_SCHEMA_DEPTH} levels of nesting"
        return
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{schema!r} is not of type 'object', 'boolean'"
        return
    yield from _find_own_problems(schema)
    for inner in _inner_schemas(schema):
        yield from _find_problems(inner, depth + 1)


def _inner_schemas(schema: dict[str, object]) -> Iterator[object]:
    for key in NAMED_SCHEMAS:
        if isinstance(named := schema.get(key), dict):
            yield from named.values()
    for key in LISTED_SCHEMAS:
        if isinstance(listed := schema.get(key), list):
            yield from listed
    for key in SINGLE_SCHEMAS:
        if key in schema:
            yield schema[key]


def _find_own_problems(schema: dict[str, object]) -> Iterator[str]:
    for keys, kind_of in ((NAMED_SCHEMAS, dict), (LISTED_SCHEMAS, list)):
        for key in keys:
            if not isinstance(schema.get(key, kind_of()), kind_of):
                yield f"{schema[key]!r} is not of the right type (in '{key}')"
    kind = schema.get("type", "object")
    for name in kind if isinstance(kind, list) else [kind]:
        if name not in SCHEMA_TYPES:
            yield f"{name!r} is not valid under any of the given schemas (in 'type')"
    if kind == "array" and not {"items", "prefixItems"} & set(schema):
        yield "array schema missing items"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f"{required!r} is not a list of names (in 'required')"


def _bad_schema(field: JsonField, name: str, problem: str) -> Refusal:
    return Refusal(
        f"Invalid schema for function '{name}': {problem}.",
        param=field.path,
        code="invalid_function_parameters",
    )


def _check_choice(field: JsonField, names: list[str]) -> None:
    if field.is_text:
        field.choice({"auto", "none", "required"})
        return
    if not isinstance(field.value, dict):
        raise invalid_type(field.path, "one of a string or object", field.value)
    field.check_keys({"type", "function"})
    field.require("type").choice({"function"})
    function = field.require("function")
    function.check_keys({"name"})
    name = function.require("name").text()
    if name not in names:
        raise invalid_value(field.path, f"tool '{name}' is not among 'tools'")
