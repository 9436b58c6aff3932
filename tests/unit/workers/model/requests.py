"""Requests that the tests of the model layer send."""

from workers.context.messages import Message
from workers.model.values import ModelRequest, ModelTarget, ToolSchema

TARGET = ModelTarget(
    name="model-1",
    base_url="http://user:secret@models.test:81/v1",
    api_key="sk-very-secret",
    context_size=8_000,
    max_output_tokens=1_000,
)
ADD = ToolSchema(
    name="add",
    description="Add numbers.",
    parameters={"type": "object", "properties": {"b": {"type": "number"}, "a": {}}},
)
REQUEST = ModelRequest(
    target=TARGET,
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Grüße 😀"),
    ),
)
