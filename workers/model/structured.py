"""One way to get an answer of a given form from a model, whatever the model can do.

Three levels, each tried when the one before gave nothing that fits: a forced tool call, JSON mode,
and plain text of which the JSON, or the named fields, are taken. What nearly fits is repaired
before another call is made.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from shared.errors import StructuredAnswerError, UnsupportedParameterError
from workers.context.messages import Message
from workers.model.json_objects import find_objects
from workers.model.values import NO_USAGE, ModelRequest, ModelResponse, ToolSchema, Usage

log = structlog.get_logger()

T = TypeVar("T", bound=BaseModel)

# Makes a call with a request that it makes fit; counts its usage.
Call = Callable[[ModelRequest], Awaitable[ModelResponse]]
Level = Literal["tool", "json", "text", "default"]

INSTRUCTIONS = """\
Answer with one JSON object and nothing else: no explanation, no Markdown. It has to follow this \
JSON schema:
"""
REFORMAT = """\
That is not what was asked for ({problem}). Answer again with the one JSON object that follows the \
schema, and nothing else."""
# Most characters of a model's wrong answer that it is shown again.
SHOWN_CHARS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(Generic[T]):
    """What an answer has to look like."""

    # Of the tool that stands for it: letters, digits and `_`.
    name: str
    description: str
    # Its validators may raise ValueError: the answer does not fit then.
    model: type[T]

    @property
    def schema(self) -> dict[str, object]:
        """JSON schema of the answer."""
        return self.model.model_json_schema()

    def read(self, found: dict[str, object]) -> T:
        """Return an object as the answer that it is, converted where that is safe.

        Raises ValidationError, a ValueError.
        """
        return self.model.model_validate(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structured(Generic[T]):
    """An answer, and how it was come by."""

    value: T
    level: Level
    # Of all calls together.
    usage: Usage
    calls: int
    # What the value was read from; {} for a default.
    raw: dict[str, object]


async def structured_llm_call(
    call: Call,
    request: ModelRequest,
    form: Form[T],
    *,
    default: T | None = None,
) -> Structured[T]:
    """Have a question answered in a form.

    request: the question; its tools and formats are set here.
    default: the answer if the model gives none that fits.
    Raises StructuredAnswerError if there is neither, ModelError if a call fails.
    """
    asking = _Asking(call, form)
    for attempt in (asking.ask_tool, asking.ask_json, asking.ask_text):
        answer = await attempt(request)
        if answer is not None:
            return answer
    if default is None:
        raise StructuredAnswerError(
            f"{request.target.name} did not answer in the form of {form.name}"
            f" ({asking.problem}): use a model that can call tools",
        )
    return asking.answer(default, "default", {})


class _Asking(Generic[T]):
    def __init__(self, call: Call, form: Form[T]) -> None:
        self._call = call
        self._form = form
        self._usage = NO_USAGE
        self._calls = 0
        # What was wrong with the last answer.
        self.problem = ""

    def answer(self, value: T, level: Level, raw: dict[str, object]) -> Structured[T]:
        if level != "tool":
            log.info("structured_degraded", form=self._form.name, way=level, calls=self._calls)
        return Structured(value=value, level=level, usage=self._usage, calls=self._calls, raw=raw)

    async def ask_tool(self, request: ModelRequest) -> Structured[T] | None:
        if not request.target.abilities.tool_call:
            return None
        tool = ToolSchema(
            name=self._form.name,
            description=self._form.description,
            parameters=self._form.schema,
        )
        asked = replace(request, tools=(tool,), tool_choice=tool.name, response_format=None)
        try:
            response = await self._ask(asked)
        except UnsupportedParameterError:
            return None
        # Some models write into their text what they should have called.
        texts = [call.arguments for call in response.tool_calls] or [response.text]
        return self._read(texts, response, "tool")

    async def ask_json(self, request: ModelRequest) -> Structured[T] | None:
        if not request.target.abilities.json_mode:
            return None
        return await self._ask_in_words(replace(request, response_format="json_object"), "json")

    async def ask_text(self, request: ModelRequest) -> Structured[T] | None:
        return await self._ask_in_words(replace(request, response_format=None), "text")

    async def _ask_in_words(self, request: ModelRequest, level: Level) -> Structured[T] | None:
        """Ask once, and once more with what was wrong."""
        schema = json.dumps(self._form.schema, ensure_ascii=False, separators=(",", ":"))
        # Last: what is asked in between may tell of other forms.
        instructions = Message(role="user", content=f"{INSTRUCTIONS}{schema}", pinned=True)
        asked = replace(
            request, messages=(*request.messages, instructions), tools=(), tool_choice=None
        )
        response = await self._ask(asked)
        answer = self._read([response.text], response, level)
        if answer is not None:
            return answer
        again = replace(asked, messages=(*asked.messages, *self._complain(response)))
        response = await self._ask(again)
        return self._read([response.text], response, level)

    def _complain(self, response: ModelResponse) -> Iterator[Message]:
        if response.text.strip():
            yield Message(role="assistant", content=response.text[:SHOWN_CHARS])
        complaint = REFORMAT.format(problem=self.problem)
        yield Message(role="user", content=complaint, pinned=True)

    async def _ask(self, request: ModelRequest) -> ModelResponse:
        response = await self._call(request)
        self._calls += 1
        self._usage += response.usage
        return response

    def _read(
        self,
        texts: list[str],
        response: ModelResponse,
        level: Level,
    ) -> Structured[T] | None:
        is_complete = response.finish_reason != "length"
        self.problem = "there is no JSON object" if is_complete else "it is too long"
        for text in texts:
            for found in self._candidates(text, level, is_complete=is_complete):
                try:
                    return self.answer(self._form.read(found), level, found)
                except ValidationError as error:
                    self.problem = _first_problem(error)
        return None

    def _candidates(
        self,
        text: str,
        level: Level,
        *,
        is_complete: bool,
    ) -> Iterator[dict[str, object]]:
        yield from find_objects(text, is_complete=is_complete)
        # The last resort: it would find something in any text.
        if level == "text" and (fields := find_fields(text, self._form.model)):
            yield fields


def find_fields(text: str, model: type[BaseModel]) -> dict[str, object]:
    """Return what a text says of a model's fields, each as text: `name: value` or the like.

    A value reaches to where the next field is named; quotes in it do not end it.
    """
    names = "|".join(map(re.escape, model.model_fields))
    named = re.compile(
        rf"""(?<![\w-])["'`*_]*(?P<name>{names})["'`*_]*\s*[:=]\s*\**""", re.IGNORECASE
    )
    found = list(named.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    known = {name.lower(): name for name in model.model_fields}
    return {
        known[match["name"].lower()]: _strip(text[match.end() : end])
        for match, end in zip(found, ends, strict=True)
    }


def _strip(value: str) -> str:
    # A dash at the end belongs to the next item of a list.
    value = value.rstrip(" \n\t-,;}`*").lstrip(" \n\t{`*")
    quote = value[:1]
    if quote and quote in "\"'" and value.endswith(quote) and len(value) > 1:
        value = value[1:-1]
    return value


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, problem["loc"]))
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])
