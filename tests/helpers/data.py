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


# Short ones, two per language.
REPLAYED_CHATS = frozenset(
    (
        *("en-107", "en-89", "de-99", "de-139", "fr-95", "fr-131"),
        *("ru-89", "ru-91", "ja-79", "ja-49", "zh-89", "zh-103"),
    )
)
REPLAYED_TRAJECTORIES = frozenset(("airline-44", "airline-92", "airline-140"))


def load_multilingual_chats() -> list[Chat]:
    """Return twelve chats of two exchanges without tools, two per language."""
    chats = load_chats(DATA / "multilingual_chats.jsonl")
    return [chat for chat in chats if chat.id in REPLAYED_CHATS]


def load_tool_trajectories() -> list[Chat]:
    """Return three customer-service runs with tool calls."""
    chats = load_chats(DATA / "airline_tool_trajectories.jsonl")
    return [chat for chat in chats if chat.id in REPLAYED_TRAJECTORIES]


def load_chats(path: Path) -> list[Chat]:
    """Return the chats of a file in the format of those in `tests/data`."""
    lines = path.read_text(encoding="utf-8").split("\n")
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
