"""JSON mode: tools for models that cannot call them, one action object per answer.

A request with tools is rewritten on its way out and its answer is read back, as if the model had
called a tool: all else of the product knows tool calls only.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import replace

from workers.context.messages import Message, Part, TextPart, ToolCall
from workers.model.json_objects import find_objects
from workers.model.values import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
)

INSTRUCTIONS = """\
You have the tools that are listed below. Each of your answers is one JSON object and nothing else,
in one of two forms. To use a tool:
{"type": "tool_call", "reasoning": "why", "tool_name": "name of the tool", "tool_args": {}}
To answer the user:
{"type": "final_answer", "answer": "the answer"}
Use one tool at a time; its result is the next message, after the word Observation.

Tools, with the JSON schemas of their arguments:
"""
OBSERVATION = "Observation: "
# Ids are not seen by the model here; whoever stores calls makes them unique.
CALL_ID = "call"


def to_json_mode(request: ModelRequest) -> ModelRequest:
    """Return the request without tools: they are described, and used, in words."""
    described = "\n".join(map(_describe, request.tools))
    messages = [_rewrite(message) for message in request.messages]
    at = next((at for at, message in enumerate(messages) if message.role == "system"), None)
    instructions = f"{INSTRUCTIONS}{described}"
    if at is None:
        messages.insert(0, Message(role="system", content=instructions, origin="instructions"))
    else:
        system = messages[at]
        messages[at] = replace(system, content=f"{system.text}\n\n{instructions}")
    return replace(
        request,
        messages=tuple(messages),
        tools=(),
        response_format="json_object" if request.target.abilities.json_mode else None,
    )


async def read_actions(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent, None]:
    """Turn the events of such an answer into those of a model that calls tools.

    Its text is known to be an answer only when it is complete, so it comes as one piece.
    """
    async for event in events:
        if isinstance(event, ModelResponse):
            response = read_response(event)
            if response.tool_calls:
                yield ToolCallDelta()
            elif not response.is_malformed:
                yield TextDelta(response.text)
            yield response


def read_response(response: ModelResponse) -> ModelResponse:
    """Return the response with its action read: a tool call, an answer, or malformed."""
    # The first one: what follows an action was imagined.
    action = next(find_objects(response.text, is_complete=response.finish_reason != "length"), None)
    if not action:
        return replace(response, is_malformed=True)
    if action.get("type") != "tool_call":
        return replace(response, text=_answer(action, response.text))
    name = action.get("tool_name")
    if not isinstance(name, str) or not name:
        return replace(response, is_malformed=True)
    reasoning = action.get("reasoning")
    call = ToolCall(id=CALL_ID, name=name, arguments=_arguments(action.get("tool_args")))
    return replace(
        response,
        text="",
        tool_calls=(call,),
        reasoning=response.reasoning or (reasoning if isinstance(reasoning, str) else ""),
    )


def _answer(action: Mapping[str, object], text: str) -> str:
    answer = action.get("answer", text)
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _arguments(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    return json.dumps(value if isinstance(value, dict) else {}, ensure_ascii=False)


def _describe(tool: ToolSchema) -> str:
    parameters = json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":"))
    return f"- {tool.name}: {tool.description}\n  {parameters}"


def _rewrite(message: Message) -> Message:
    if message.tool_calls:
        return replace(message, content="\n".join(_actions(message)), tool_calls=())
    if message.role == "tool":
        content = _observe(message.content)
        return replace(message, role="user", content=content, tool_call_id=None)
    return message


def _actions(message: Message) -> Iterator[str]:
    for call in message.tool_calls:
        action = {"type": "tool_call", "reasoning": message.text, "tool_name": call.name}
        head = json.dumps(action, ensure_ascii=False).removesuffix("}")
        # The arguments as the model wrote them, valid JSON or not.
        yield f'{head}, "tool_args": {call.arguments or "{}"}}}'


def _observe(content: str | tuple[Part, ...] | None) -> str | tuple[Part, ...]:
    if content is None or isinstance(content, str):
        return f"{OBSERVATION}{content or ''}"
    return (TextPart(text=OBSERVATION), *content)
