"""A model that answers in forms, as a test says."""

import json
from collections.abc import Mapping

from workers.context.messages import ToolCall
from workers.model.values import NO_USAGE, ModelRequest, ModelResponse


class Scripted:
    """Answers one call after the other; an error is raised."""

    def __init__(self, *answers: Mapping[str, object] | Exception) -> None:
        self.requests: list[ModelRequest] = []
        self._answers = list(answers)

    async def __call__(self, request: ModelRequest) -> ModelResponse:
        """Make the next call."""
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        called = ToolCall(id="call_1", name=request.tool_choice or "", arguments=json.dumps(answer))
        return ModelResponse(
            text="", tool_calls=(called,), finish_reason="tool_calls", usage=NO_USAGE
        )
