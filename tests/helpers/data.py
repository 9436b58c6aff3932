"""The conversations in `tests/data`, as values. Their sources stand in the README there."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.context.messages import Message, ToolCall

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A user's message and all that answered it: tool rounds, then the answer."""

    question: str
    # Assistant messages with tool calls, each followed by its results.
    rounds: tuple[Message, ...]
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A conversation as it was recorded."""

    id: str
    # ISO 639-1; the tool trajectories are English.
    language: str
    messages: tuple[Message, ...]

    @property
    def instructions(self) -> str | None:
        """Text of the system message, if it begins with one."""
        first = self.messages[0]
        return first.text if first.role == "system" else None

    @property
    def exchanges(self) -> list[Exchange]:
        """The exchanges that end in an answer, in order; an unanswered last one is left out."""
        exchanges: list[Exchange] = []
        question, rounds = "", list[Message]()
        for message in self.messages:
            if message.role == "user":
                question, rounds = message.text, []
            elif message.role == "assistant" and not message.tool_calls:
                exchange = Exchange(question=question, rounds=tuple(rounds), answer=message.text)
                exchanges.append(exchange)
            elif message.role != "system":
                rounds.append(message)
        return exchanges


def load_multilingual_chats() -> list[Chat]:
    """Return twelve chats of two exchanges without tools, two per language."""
    return _load("multilingual_chats.jsonl")


def load_tool_trajectories() -> list[Chat]:
    """Return three customer-service runs with tool calls."""
    return _load("airline_tool_trajectories.jsonl")


def _load(name: str) -> list[Chat]:
    lines = (DATA / name).read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    return [
        Chat(
            id=row["id"],
            language=row.get("lang", "en"),
            messages=tuple(_parse_message(message) for message in row["messages"]),
        )
        for row in rows
    ]


def _parse_message(wire: dict[str, Any]) -> Message:
    return Message(
        role=wire["role"],
        content=wire["content"],
        tool_calls=tuple(
            ToolCall(
                id=call["id"],
                name=call["function"]["name"],
                arguments=call["function"]["arguments"],
            )
            for call in wire.get("tool_calls") or ()
        ),
        tool_call_id=wire.get("tool_call_id"),
    )
