"""The body of a request: the same request gives the same bytes, so that prompt caches hit."""

import orjson

from workers.model.values import ModelRequest


def encode_body(request: ModelRequest) -> bytes:
    """Return the JSON body of a streamed chat completion.

    Model, tools and messages come first and in this order, as caches compare from the start.
    """
    body: dict[str, object] = {"model": request.target.name}
    if request.tools:
        body["tools"] = [tool.to_wire() for tool in request.tools]
    body["messages"] = [message.to_wire() for message in request.messages]
    if request.response_format is not None:
        body["response_format"] = {"type": request.response_format}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body)
