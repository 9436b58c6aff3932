"""A tool: a function the model may call, with a schema made from its signature and docstring.

The docstring is what the model reads: its lines `name: text` describe the parameters (further
lines are indented), the rest describes the tool. A parameter annotated as `ToolContext` is
filled by the worker and hidden from the model. An `async` function runs in the worker's loop and
must not block it; any other runs in a thread, which a timeout abandons but cannot stop.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from shared.errors import ConfigurationError, ToolError
from shared.ids import ConversationId, ToolCallId, TurnId
from workers.model.values import ToolSchema

# What the API accepts as a function's name.
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Where a tool call belongs."""

    # The same if the call is run again: an idempotency key.
    tool_call_id: ToolCallId
    turn_id: TurnId
    conversation_id: ConversationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as the worker knows it."""

    name: str
    description: str
    # JSON schema of type object.
    parameters: dict[str, object]
    function: Callable[..., object]
    # Checks the arguments; its fields carry the parameters' names as aliases.
    arguments: type[BaseModel]
    # Name of the function's parameter of type ToolContext.
    context_parameter: str | None = None
    # Whether a call may be run again when its outcome is unknown.
    is_repeatable: bool = False
    # Time one call may take; None: the worker's setting.
    timeout_s: float | None = None

    def schema(self) -> ToolSchema:
        """Return the tool as the model is told of it."""
        return ToolSchema(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
        )

    def parse_arguments(self, arguments_json: str) -> dict[str, object]:
        """Return the arguments by parameter, converted and with defaults filled in.

        arguments_json: as the model sent it; empty and null are taken as no arguments.
        Raises ToolError with a sentence that lists all that is wrong.
        """
        text = arguments_json.strip()
        try:
            parsed = self.arguments.model_validate_json("{}" if text in ("", "null") else text)
        except ValidationError as error:
            raise ToolError(f"The arguments of {self.name} are wrong. {_explain(error)}") from error
        fields = self.arguments.model_fields
        return {str(field.alias): getattr(parsed, key) for key, field in fields.items()}


def tool(
    *,
    is_repeatable: bool = False,
    timeout_s: float | None = None,
) -> Callable[[Callable[..., object]], Tool]:
    """Make a function a tool of the same name.

    is_repeatable: whether a call may be run again when its outcome is unknown.
    timeout_s: time one call may take; None: the worker's setting.
    Raises ConfigurationError if the signature cannot become a schema.
    """

    def decorate(function: Callable[..., object]) -> Tool:
        name = getattr(function, "__name__", "")
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} cannot be a tool's name: use {NAME.pattern}")
        hints = _get_hints(function)
        description, texts = _read_docstring(function, hints)
        try:
            arguments = _arguments_model(function, hints, texts)
            parameters = _schema_of(arguments)
        except PydanticUserError as error:
            raise ConfigurationError(f"{name}: {error}") from error
        return Tool(
            name=name,
            description=description,
            parameters=parameters,
            function=function,
            arguments=arguments,
            context_parameter=next((key for key in hints if hints[key] is ToolContext), None),
            is_repeatable=is_repeatable,
            timeout_s=timeout_s,
        )

    return decorate


class _Schema(GenerateJsonSchema):
    """Leaves out titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - overridden
        return False


def _get_hints(function: Callable[..., object]) -> dict[str, typing.Any]:
    """Return the type of each parameter."""
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigurationError(f"{function.__name__}: {parameter} cannot be an argument")
        if name not in hints:
            raise ConfigurationError(f"{function.__name__}: {name} needs a type")
    hints.pop("return", None)
    return hints


def _read_docstring(
    function: Callable[..., object],
    names: typing.Iterable[str],
) -> tuple[str, dict[str, str]]:
    """Return the description of the tool, and those of its parameters."""
    lines: list[str] = []
    texts: dict[str, str] = {}
    current = None
    for line in (inspect.getdoc(function) or "").splitlines():
        name, colon, text = line.partition(":")
        if colon and name in names:
            current = name
            texts[name] = text.strip()
        elif current is not None and line.startswith(" "):
            texts[current] += f" {line.strip()}"
        else:
            current = None
            lines.append(line)
    description = "\n".join(lines).strip()
    if not description:
        raise ConfigurationError(f"{function.__name__}: a tool needs a docstring")
    return description, texts


def _arguments_model(
    function: Callable[..., object],
    hints: Mapping[str, typing.Any],
    texts: Mapping[str, str],
) -> type[BaseModel]:
    fields: dict[str, typing.Any] = {}
    for number, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if hints[name] is ToolContext:
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        described: dict[str, typing.Any] = {"description": texts[name]} if name in texts else {}
        # The field's own name is neutral: a parameter may be called as a method of the model.
        fields[f"argument_{number}"] = (hints[name], Field(default, alias=name, **described))
    return create_model(
        function.__name__,
        __config__=ConfigDict(extra="forbid"),
        **fields,
    )


def _schema_of(arguments: type[BaseModel]) -> dict[str, object]:
    schema: dict[str, object] = arguments.model_json_schema(schema_generator=_Schema)
    schema.pop("title", None)
    return schema


def _explain(error: ValidationError) -> str:
    problems = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(part) for part in problem["loc"])
        text = (
            "there is no such argument" if problem["type"] == "extra_forbidden" else problem["msg"]
        )
        problems.append(f"{place}: {text}" if place else text)
    return "; ".join(problems)
