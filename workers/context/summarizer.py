"""Summaries written by the compaction model, whatever the length of what it has to read.

What does not fit that model's window is summarised in parts, and the summaries again together.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

from shared.errors import ContextLengthError, ModelError
from workers.context.budget import Budget
from workers.context.counter import TokenCounter
from workers.context.hints import Hint, prompt_for
from workers.context.llm_compact import SummaryRefusedError
from workers.context.messages import Message, TextPart
from workers.context.summary import is_summary, summary_text
from workers.model.together import together
from workers.model.values import ModelRequest, ModelResponse, ModelTarget

Call = Callable[[ModelRequest], Awaitable[ModelResponse]]
Current = Callable[[], tuple[ModelTarget, TokenCounter]]

# Share of the compaction model's room that a record takes; the rest is for its instructions.
RECORD_SHARE = 0.9
# Parts that are summarised at the same time.
MAX_PARALLEL = 4
# Summaries of summaries of summaries say nothing any more.
MAX_LEVELS = 3
MIN_ROOM_TOKENS = 100
WORDS_PER_TOKEN = 0.6

_DATA_URL = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=_-]*")
_TAG = re.compile(r"<(/?record)>", re.IGNORECASE)
# A refusal says so at once, and has little more to say.
MAX_REFUSAL_CHARS = 400
_REFUSAL = re.compile(
    r"\W*(i.?m (very )?sorry|sorry|i (can.?t|cannot|can not|won.?t|am unable)"
    r"|as an ai|unfortunately,? i|es tut mir leid|ich kann (das|dies|diese\w*|leider)? ?nicht"
    r"|(je suis )?désolé|je ne peux pas|lo siento|no puedo|к сожалению|извините|я не могу"
    r"|申し訳|すみません|抱歉|对不起|很遗憾|我无法|我不能|죄송)",
    re.IGNORECASE,
)


class Summarizer:
    """Has messages summarised. `summarize` is what `llm_compact` calls.

    current: returns the compaction model and its counter as they are known at that moment.
    """

    def __init__(self, call: Call, current: Current) -> None:
        self._call = call
        self._current = current
        self._slots = asyncio.Semaphore(MAX_PARALLEL)

    async def summarize(
        self,
        messages: Sequence[Message],
        *,
        hint: Hint,
        room_tokens: int,
    ) -> str:
        """Return a summary of messages; see `Summarize`.

        Raises SummaryRefusedError if the model failed, refused or wrote nothing.
        """
        lines = [line for message in messages if (line := render(message))]
        if not lines:
            raise SummaryRefusedError("there is no text to summarize")
        room = max(room_tokens, MIN_ROOM_TOKENS)
        try:
            return await self._fold_again_if_too_long(lines, hint, room)
        except ModelError as error:
            raise SummaryRefusedError(f"the compaction model failed: {error.message}") from error

    async def _fold_again_if_too_long(self, lines: list[str], hint: Hint, room: int) -> str:
        try:
            return await self._fold(lines, hint, room, levels=MAX_LEVELS)
        except ContextLengthError:
            # Its window is smaller than was thought; by now it is known how small.
            return await self._fold(lines, hint, room, levels=MAX_LEVELS)

    async def _fold(self, lines: list[str], hint: Hint, room: int, *, levels: int) -> str:
        target, counter = self._current()
        budget = Budget.of(target).usable - counter.text(prompt_for(hint))
        records = pack(lines, max(int(budget * RECORD_SHARE), MIN_ROOM_TOKENS), counter)
        if len(records) == 1:
            return await self._ask(target, records[0], hint, room)
        if levels == 1:
            raise SummaryRefusedError("the summaries of its parts do not get any shorter")
        parts = await together(self._ask(target, record, hint, room) for record in records)
        named = [f"Part {at} of {len(parts)}: {part}" for at, part in enumerate(parts, start=1)]
        return await self._fold(named, hint, room, levels=levels - 1)

    async def _ask(self, target: ModelTarget, record: str, hint: Hint, room: int) -> str:
        words = max(int(room * WORDS_PER_TOKEN), 50)
        request = ModelRequest(
            target=target,
            messages=(
                Message(role="system", content=prompt_for(hint), origin="instructions"),
                Message(
                    role="user",
                    content=f"<record>\n{record}\n</record>\n\n"
                    f"Summarize the record in at most {words} words.",
                    pinned=True,
                    origin="query",
                ),
            ),
            purpose="compaction",
        )
        async with self._slots:
            response = await self._call(request)
        return _usable(response)


def render(message: Message) -> str:
    """Return a message as a line of the record: no image data, no tags of the record."""
    if is_summary(message):
        return _plain(f"Earlier summary: {summary_text([message])}")
    content = message.content if isinstance(message.content, tuple) else ()
    images = " [image]" * sum(not isinstance(part, TextPart) for part in content)
    text = message.text + images
    if message.role == "tool":
        return _plain(f"Tool result: {text}")
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    who = message.role.capitalize()
    spoken = [f"{who}: {text}"] if text.strip() else []
    return _plain("\n".join([*spoken, *(f"{who} calls {call}" for call in calls)]))


def pack(lines: Sequence[str], max_tokens: int, counter: TokenCounter) -> list[str]:
    """Join lines, in order, into as few records of at most max_tokens as there can be.

    A line that is too long by itself is split.
    """
    records: list[str] = []
    open_lines: list[str] = []
    left = max_tokens
    for piece in (piece for line in lines for piece in _split(line, max_tokens, counter)):
        tokens = counter.text(f"{piece}\n")
        if tokens > left and open_lines:
            records.append("\n".join(open_lines))
            open_lines, left = [], max_tokens
        open_lines.append(piece)
        left -= tokens
    return [*records, "\n".join(open_lines)]


def _split(line: str, max_tokens: int, counter: TokenCounter) -> list[str]:
    if counter.text(f"{line}\n") <= max_tokens:
        return [line]
    half = len(line) // 2
    return _split(line[:half], max_tokens, counter) + _split(line[half:], max_tokens, counter)


def _plain(text: str) -> str:
    return _TAG.sub(r"<_\1>", _DATA_URL.sub("[image data]", text))


def _usable(response: ModelResponse) -> str:
    text = response.text.strip()
    if not text:
        raise SummaryRefusedError("the summary was empty")
    is_short = len(text) <= MAX_REFUSAL_CHARS
    if response.finish_reason == "content_filter" or (is_short and _REFUSAL.match(text)):
        raise SummaryRefusedError("the compaction model refused to summarize")
    return text
