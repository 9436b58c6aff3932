"""The body of a request: the same request gives the same bytes, so that prompt caches hit."""

from collections.abc import Collection

import orjson

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
    body["messages"] = [message.to_wire() for message in request.messages]
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
