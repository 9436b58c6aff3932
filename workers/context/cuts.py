"""Cuts inside of texts. A cut text says so with a mark; images are never cut."""

from collections.abc import Sequence
from dataclasses import replace

from workers.context.counter import ESTIMATE, TokenCounter
from workers.context.messages import Message, Part, TextPart

MARK = "[Truncated]"
# Most characters of text in one message or tool result.
MAX_CHARS = 50_000


def cut_end(text: str, max_chars: int = MAX_CHARS) -> str:
    """Return the text, or its beginning and the mark, together at most max_chars long."""
    if len(text) <= max_chars:
        return text
    return text[: max_chars - len(MARK)] + MARK


def cut_middle(text: str, max_tokens: int, counter: TokenCounter = ESTIMATE) -> str:
    """Return the text, or its head and tail with the mark between, within max_tokens.

    The mark alone is left where not even that fits; a text no larger than it stays.
    """
    if counter.text(text) <= max(max_tokens, counter.text(MARK)):
        return text
    # The count grows with the characters kept, so the most that fit are found by halving.
    fitting, too_many = 0, len(text)
    while too_many - fitting > 1:
        tried = (fitting + too_many) // 2
        if counter.text(_ends(text, tried)) <= max_tokens:
            fitting = tried
        else:
            too_many = tried
    return _ends(text, fitting)


def cap_message(message: Message) -> Message:
    """Return the message with at most MAX_CHARS of text; the same one if nothing was cut."""
    if text_length(message) <= MAX_CHARS:
        return message
    return _with_text(message, cut_end(message.text))


def text_length(message: Message) -> int:
    """Return the length of `message.text`."""
    content = message.content
    return len(content) if isinstance(content, str) else len(message.text)


def shrink(
    messages: Sequence[Message],
    room_tokens: int,
    counter: TokenCounter = ESTIMATE,
) -> list[Message]:
    """Cut the middle of messages, the largest only, so that together they fit a room.

    Small ones stay whole and leave what they do not need to the others. What cannot be cut
    (images, tool calls, the marks) stays, so the result can be over a very small room.
    """
    shrunk = [_shrink_one(message, 0, counter) for message in messages]
    least = [counter.message(message) for message in shrunk]
    needs = [counter.message(message) - least[at] for at, message in enumerate(messages)]
    spare = max(0, room_tokens - sum(least))
    for number, at in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        share = min(needs[at], spare // (len(needs) - number))
        shrunk[at] = _shrink_one(messages[at], least[at] + share, counter)
        spare -= share
    return shrunk


def _shrink_one(message: Message, max_tokens: int, counter: TokenCounter) -> Message:
    if counter.message(message) <= max_tokens or not message.text:
        return message
    uncuttable = counter.message(_with_text(message, ""))
    return _with_text(message, cut_middle(message.text, max_tokens - uncuttable, counter))


def _ends(text: str, kept_chars: int) -> str:
    tail_chars = kept_chars // 2
    head, tail = text[: kept_chars - tail_chars], text[len(text) - tail_chars :]
    return f"{head}\n{MARK}\n{tail}" if kept_chars else MARK


def _with_text(message: Message, text: str) -> Message:
    """Return the message with all its text replaced; images stay in their order."""
    if isinstance(message.content, str):
        return replace(message, content=text)
    images: list[Part] = [part for part in message.content or () if not isinstance(part, TextPart)]
    return replace(message, content=(TextPart(text=text), *images))
