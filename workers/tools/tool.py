"""A tool: a function the model may call, with a schema made from its signature and docstring.

In its place may stand a class or an object with a method `run`. The docstring is what the model
reads: its lines `name: text` describe the parameters (further lines are indented), the rest
describes the tool. A parameter annotated as `ToolContext` is filled by the worker and hidden from
the model. An `async` function runs in the worker's loop and must not block it; any other runs in a
thread, which a timeout abandons but cannot stop.
"""

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from shared.database import Work
from shared.errors import ConfigurationError, ToolError
from shared.ids import ConversationId, ToolCallId, TurnId
from workers.model.values import ToolSchema

T = TypeVar("T")

# What the API accepts as a function's name.
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Where a class's name has a gap: OrderStatus, HTTPGet.
GAP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Where a call runs: a Celery queue of that name.
Queue = Literal["tools"]


class HasRun(Protocol):
    """An object that is a tool by its method."""

    @property
    def run(self) -> Callable[..., object]:
        """What a call runs."""


class Read(Protocol):
    """Reads from the store."""

    async def __call__(self, work: Work[T]) -> T:
        """Run work that only reads. Raises StorageError if the store cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Where a tool call belongs, and what it has of the worker."""

    # The same if the call is run again: an idempotency key.
    tool_call_id: ToolCallId
    turn_id: TurnId
    conversation_id: ConversationId
    # Only for what runs in the worker's loop.
    read: Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How a call is run."""

    # None: in the loop of the worker that runs the turn.
    queue: Queue | None = None
    needs_approval: bool = False
    is_repeatable: bool = False
    # Time it may take; None: whoever runs it knows.
    timeout_s: float | None = None


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
    # None: in the loop of the worker that runs the turn.
    queue: Queue | None = None
    # Whether a person has to approve each call before it runs.
    needs_approval: bool = False

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
        try:
            parsed = self.arguments.model_validate_json(_object_text(arguments_json))
        except ValidationError as error:
            raise ToolError(f"The arguments of {self.name} are wrong. {_explain(error)}") from error
        fields = self.arguments.model_fields
        known = {str(field.alias): getattr(parsed, key) for key, field in fields.items()}
        return known | (parsed.model_extra or {})


def tool(
    *,
    name: str | None = None,
    is_repeatable: bool = False,
    timeout_s: float | None = None,
    queue: Queue | None = None,
    needs_approval: bool = False,
) -> Callable[[Callable[..., object] | HasRun], Tool]:
    """Make a tool of a function, or of a class or an object with a method `run`.

    A class is made into an object without arguments.
    name: None: the function's, or the class's in snake case.
    is_repeatable: whether a call may be run again when its outcome is unknown.
    timeout_s: time one call may take; None: the worker's setting.
    queue: "tools": calls run as tasks of their own, in processes for what burns CPU or blocks.
    needs_approval: whether a person has to approve each call before it runs.
    Raises ConfigurationError if the signature cannot become a schema.
    """
    if queue not in (None, *typing.get_args(Queue)):
        raise ConfigurationError(f"There is no queue {queue!r} for tools: use 'tools' or None")

    def decorate(target: Callable[..., object] | HasRun) -> Tool:
        own_name, function, docstring = _look_into(target)
        tool_name = own_name if name is None else name
        if not NAME.fullmatch(tool_name):
            raise ConfigurationError(f"{tool_name!r} cannot be a tool's name: use {NAME.pattern}")
        hints = _get_hints(function, tool_name)
        description, texts = _read_docstring(docstring, hints)
        if not description:
            raise ConfigurationError(f"{tool_name}: a tool needs a docstring")
        try:
            arguments = _arguments_model(function, tool_name, hints, texts)
            parameters = _schema_of(arguments)
        except PydanticUserError as error:
            raise ConfigurationError(f"{tool_name}: {error}") from error
        return Tool(
            name=tool_name,
            description=description,
            parameters=parameters,
            function=function,
            arguments=arguments,
            context_parameter=next((key for key in hints if hints[key] is ToolContext), None),
            is_repeatable=is_repeatable,
            timeout_s=timeout_s,
            queue=queue,
            needs_approval=needs_approval,
        )

    return decorate


def parse_object(arguments_json: str) -> dict[str, object]:
    """Return arguments that a tool has accepted as the JSON object they are."""
    parsed: dict[str, object] = json.loads(_object_text(arguments_json))
    return parsed


def _object_text(arguments_json: str) -> str:
    text = arguments_json.strip()
    return "{}" if text in ("", "null") else text


class _Schema(GenerateJsonSchema):
    """Leaves out titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - overridden
        return False


def _look_into(target: Callable[..., object] | HasRun) -> tuple[str, Callable[..., object], str]:
    """Return the name, the function and the docstring of what is to be a tool."""
    if inspect.isroutine(target):
        return target.__name__, target, inspect.getdoc(target) or ""
    owner = target if inspect.isclass(target) else type(target)
    try:
        run = getattr(target() if inspect.isclass(target) else target, "run", None)
    except TypeError as error:
        raise ConfigurationError(
            f"{owner.__name__} cannot be made without arguments ({error}): decorate an object",
        ) from error
    if not inspect.isroutine(run):
        raise ConfigurationError(f"{owner.__name__} needs a method `run` to be a tool")
    docstring = inspect.getdoc(run) or inspect.getdoc(owner) or ""
    return GAP.sub("_", owner.__name__).lower(), run, docstring


def _get_hints(function: Callable[..., object], name: str) -> dict[str, typing.Any]:
    """Return the type of each parameter."""
    hints = typing.get_type_hints(function, include_extras=True)
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigurationError(f"{name}: {parameter} cannot be an argument")
        if key not in hints:
            raise ConfigurationError(f"{name}: {key} needs a type")
    hints.pop("return", None)
    return hints


def _read_docstring(docstring: str, names: typing.Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return the description of the tool, and those of its parameters."""
    lines: list[str] = []
    texts: dict[str, str] = {}
    current = None
    for line in docstring.splitlines():
        name, colon, text = line.partition(":")
        if colon and name in names:
            current = name
            texts[name] = text.strip()
        elif current is not None and line.startswith(" "):
            texts[current] += f" {line.strip()}"
        else:
            current = None
            lines.append(line)
    return "\n".join(lines).strip(), texts


def _arguments_model(
    function: Callable[..., object],
    name: str,
    hints: Mapping[str, typing.Any],
    texts: Mapping[str, str],
) -> type[BaseModel]:
    fields: dict[str, typing.Any] = {}
    for number, (key, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if hints[key] is ToolContext:
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        described: dict[str, typing.Any] = {"description": texts[key]} if key in texts else {}
        # The field's own name is neutral: a parameter may be called as a method of the model.
        fields[f"argument_{number}"] = (hints[key], Field(default, alias=key, **described))
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


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
