"""What tools did in a turn, read from the messages of a request or from a record in its text."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from demo.chat_messages import ChatMessage
from demo.protocol import ChatRequest

# A record of work: `Call: name(arguments)` for each call, then `Result: text` for each in order.
ENTRY = re.compile(
    r"^(?P<kind>Call|Result|Thought|User): (?P<text>.*(?:\n(?!(?:Call|Result|Thought|User): ).*)*)",
    re.MULTILINE,
)
CALL = re.compile(r"(?P<name>[\w-]+)\((?P<arguments>.*)\)", re.DOTALL)
RECORDED_REQUEST = re.compile(
    r"\A(?:Request|Question):\s*(?P<text>.*?)(?=\n\n[A-Z][a-z ]+:\n|\n(?:Call|Result): |\Z)",
    re.DOTALL,
)
# What a system puts before a message that came in later.
MARK = re.compile(r"\A\[[^\]\n]*:\]\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWork:
    """One finished tool call."""

    name: str
    arguments: str
    result: str

    @property
    def expression(self) -> str:
        """The calculation that was asked for, if it was one."""
        try:
            arguments = json.loads(self.arguments)
        except ValueError:
            return ""
        found = arguments.get("expression", "") if isinstance(arguments, dict) else ""
        return found if isinstance(found, str) else ""


def turn_messages(request: ChatRequest) -> Sequence[ChatMessage]:
    """Return the messages after the last complete answer: those of the turn that is running."""
    messages = request.messages
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant" and not messages[index].tool_calls:
            return messages[index + 1 :]
    return messages


def read_question(request: ChatRequest) -> str:
    """Return what the user wants to know last, without anything put around it."""
    text = request.last_user_text
    if recorded := RECORDED_REQUEST.match(text):
        text = recorded["text"]
    return MARK.sub("", text).strip()


def read_work(request: ChatRequest) -> list[ToolWork]:
    """Return the finished calls of the running turn, oldest first."""
    messages = turn_messages(request)
    calls = {call.id: call for message in messages for call in message.tool_calls}
    work = [
        ToolWork(name=call.name, arguments=call.arguments, result=message.text)
        for message in messages
        if message.role == "tool" and (call := calls.get(message.tool_call_id))
    ]
    return work or list(_read_record(request.last_user_text))


def _read_record(text: str) -> Iterator[ToolWork]:
    waiting: list[re.Match[str]] = []
    for entry in ENTRY.finditer(text):
        if entry["kind"] == "Call":
            if call := CALL.match(entry["text"].strip()):
                waiting.append(call)
        elif entry["kind"] == "Result" and waiting:
            call = waiting.pop(0)
            result = entry["text"].strip()
            yield ToolWork(name=call["name"], arguments=call["arguments"], result=result)


def names_called_since_last_user(request: ChatRequest) -> frozenset[str]:
    """Return the tools called after the last message of the user."""
    names: set[str] = set()
    for message in reversed(request.messages):
        if message.role == "user":
            break
        names.update(call.name for call in message.tool_calls)
    return frozenset(names)
