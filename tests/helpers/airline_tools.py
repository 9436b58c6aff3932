"""The tools of the recorded customer-service runs: each answers as it did when it was recorded."""

import json
from typing import Any

from pydantic import ConfigDict, Field, create_model

from tests.helpers.data import load_tool_trajectories
from workers.tools.tool import Tool


def _normalise(arguments: dict[str, Any]) -> str:
    given = {name: value for name, value in arguments.items() if value is not None}
    return json.dumps(given, sort_keys=True)


def _recorded() -> dict[str, dict[str, str]]:
    """Return the results by tool and arguments."""
    results: dict[str, dict[str, str]] = {}
    for chat in load_tool_trajectories():
        asked = {call.id: call for message in chat.messages for call in message.tool_calls}
        for message in chat.messages:
            if message.tool_call_id is not None:
                call = asked[message.tool_call_id]
                key = _normalise(json.loads(call.arguments))
                results.setdefault(call.name, {})[key] = message.text
    return results


def _make_tool(name: str, results: dict[str, str]) -> Tool:
    names = sorted({argument for key in results for argument in json.loads(key)})

    async def replay(**arguments: Any) -> str:  # noqa: ANN401 - recorded JSON
        return results[_normalise(arguments)]

    fields: dict[str, Any] = {key: (Any, Field(None, alias=key)) for key in names}
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return Tool(
        name=name,
        description=f"Recorded tool {name}.",
        parameters={"type": "object", "properties": {key: {} for key in names}},
        function=replay,
        arguments=model,
        is_repeatable=True,
    )


TOOLS = {name: _make_tool(name, results) for name, results in _recorded().items()}
REPLAYED = list(TOOLS.values())
SETTING = "tests.helpers.airline_tools:REPLAYED"
