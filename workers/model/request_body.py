"""The body of a request: the same request gives the same bytes, so that prompt caches hit."""

from collections.abc import Collection, Sequence
from itertools import chain

import orjson

from workers.context.messages import Message, TextPart
from workers.model.parameters import Parameter
from workers.model.values import ModelRequest


def encode_body(request: ModelRequest, refused: Collection[Parameter] = ()) -> bytes:
    """Return the JSON body of a streamed chat completion.

    refused: what the provider does not know; left out, or said in another way.
    Model, tools and messages come first and in this order, as caches compare from the start.
    """
    body: dict[str, object] = {"model": request.target.name}
    if request.tools:
        body["tools"] = [tool.to_wire() for tool in request.tools]
        if request.tool_choice is not None and "tool_choice" not in refused:
            function = {"name": request.tool_choice}
            body["tool_choice"] = {"type": "function", "function": function}
    messages = _without_system(request.messages) if "system" in refused else request.messages
    body["messages"] = [message.to_wire() for message in messages]
    if request.response_format is not None and "response_format" not in refused:
        body["response_format"] = {"type": request.response_format}
    if request.max_tokens is not None:
        # The newer name is not known everywhere either.
        name = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        body[name] = request.max_tokens
    body["stream"] = True
    if "stream_options" not in refused:
        body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body)


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Say what system messages say at the beginning of the user messages that follow them.

    Such models mostly want users and assistants in turns, too.
    """
    said: list[Message] = []
    pending: list[Message] = []
    for message in messages:
        if message.role == "system":
            pending.append(message)
            continue
        if message.role == "user":
            said.append(_joined([*pending, message]))
        else:
            said += [*([_joined(pending)] if pending else []), message]
        pending = []
    return said + ([_joined(pending)] if pending else [])


def _joined(messages: Sequence[Message]) -> Message:
    contents = [message.content for message in messages if message.content]
    if all(isinstance(content, str) for content in contents):
        return Message(role="user", content="\n\n".join(map(str, contents)))
    parts = [
        (TextPart(text=content),) if isinstance(content, str) else content for content in contents
    ]
    return Message(role="user", content=tuple(chain.from_iterable(parts)))
