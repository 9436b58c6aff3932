"""Tokenizers as referees: each counts a request as a provider that uses it would.

The vocabularies are files of litellm's wheel; nothing is fetched.
"""

import importlib.util
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import tiktoken
from tokenizers import Tokenizer

from workers.context.messages import Message
from workers.model.values import ModelRequest, ToolSchema

CountText = Callable[[str], int]


class Referee(ABC):
    """Counts the tokens of requests."""

    # Tokens around a message, and around a tool call.
    message_tokens: int
    call_tokens: int
    # Tokens that have the model begin its answer.
    reply_tokens: int

    def __init__(self, name: str, count_text: CountText) -> None:
        self.name = name
        self.count_text = count_text
        # Of messages, which are kept so that their ids stay theirs.
        self._known: dict[int, tuple[Message, int]] = {}

    def count(self, request: ModelRequest) -> int:
        """Return the tokens of a request: messages, tool calls and tool schemas."""
        messages = sum(map(self._message, request.messages))
        return messages + self._tools(request.tools) + self.reply_tokens

    def _message(self, message: Message) -> int:
        known = self._known.get(id(message))
        if known is None:
            tokens = self.message_tokens + self.count_text(message.text)
            for call in message.tool_calls:
                tokens += self.call_tokens
                tokens += self.count_text(call.name) + self.count_text(call.arguments)
            known = self._known[id(message)] = (message, tokens)
        return known[1]

    @abstractmethod
    def _tools(self, schemas: tuple[ToolSchema, ...]) -> int:
        """Return the tokens of tool schemas."""


class OpenAIReferee(Referee):
    """Counts as OpenAI's cookbook does ("How to count tokens with tiktoken").

    A message costs its role besides 3 tokens. Tools are rendered without the braces of JSON.
    """

    message_tokens = 4
    call_tokens = 4
    reply_tokens = 3

    def __init__(self, name: str, count_text: CountText, *, function_tokens: int) -> None:
        super().__init__(name, count_text)
        self._function_tokens = function_tokens

    def _tools(self, schemas: tuple[ToolSchema, ...]) -> int:
        return sum(map(self._tool, schemas)) + 12 * bool(schemas)

    def _tool(self, schema: ToolSchema) -> int:
        description = schema.description.rstrip(".")
        tokens = self._function_tokens + self.count_text(f"{schema.name}:{description}")
        properties = schema.parameters.get("properties")
        if isinstance(properties, dict) and properties:
            tokens += 3 + sum(3 + self.count_text(line) for line in _lines(properties))
        return tokens


class TemplateReferee(Referee):
    """Counts as the chat templates of open models do: marks around messages, tools as JSON."""

    message_tokens = 3
    call_tokens = 10
    reply_tokens = 2

    def _tools(self, schemas: tuple[ToolSchema, ...]) -> int:
        texts = (json.dumps(schema.to_wire(), ensure_ascii=False) for schema in schemas)
        return sum(map(self.count_text, texts))


def load_referees() -> list[Referee]:
    """Return all referees."""
    folder = _vocabularies()
    # tiktoken looks for its vocabularies here before it would fetch them.
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    return [
        OpenAIReferee("o200k", _tiktoken("o200k_base"), function_tokens=7),
        OpenAIReferee("cl100k", _tiktoken("cl100k_base"), function_tokens=10),
        TemplateReferee("deepseek", _tokenizers(folder / "deepseek_tokenizer.json")),
        TemplateReferee("claude-2", _tokenizers(folder / "anthropic_tokenizer.json")),
    ]


def _vocabularies() -> Path:
    # Found without being imported, which would take seconds.
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("litellm is not installed: run `make eval-context`")
    return Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")


def _tiktoken(name: str) -> CountText:
    encoding = tiktoken.get_encoding(name)
    return lambda text: len(encoding.encode_ordinary(text))


def _tokenizers(path: Path) -> CountText:
    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _lines(properties: dict[str, dict[str, object]]) -> Iterator[str]:
    for name, schema in properties.items():
        description = str(schema.get("description", "")).rstrip(".")
        yield f"{name}:{schema.get('type', 'any')}:{description}"
