"""The tool that searches the conversation's own past, summarised away or not."""

from functools import partial
from typing import Annotated

from pydantic import Field

from shared.errors import ToolError
from shared.repositories import messages
from shared.repositories.messages import StoredMessage
from workers.tools.tool import ToolContext, tool

MAX_TERMS = 10
# Characters shown before the first hit in a message, and in all.
LEAD_CHARS = 120
SNIPPET_CHARS = 400
# Messages looked through in one read, so that none holds up the others.
BATCH = 1_000


@tool(is_repeatable=True)
async def text_search(
    words: Annotated[str, Field(min_length=1, max_length=200)],
    context: ToolContext,
    max_results: Annotated[int, Field(ge=1, le=20)] = 5,
) -> str:
    """Search all earlier messages of this conversation, newest first.

    words: each must occur in a message, as it is or within a longer word
    """
    terms = list(dict.fromkeys(words.lower().split()))
    if not 1 <= len(terms) <= MAX_TERMS:
        raise ToolError(f"Give 1 to {MAX_TERMS} words to search for")
    found = await _search(terms, context, max_results)
    if not found:
        return "No earlier message holds these words."
    return "\n".join(_show(message, terms) for message in found)


async def _search(
    terms: list[str],
    context: ToolContext,
    max_results: int,
) -> list[StoredMessage]:
    before = await context.read(partial(messages.get_first_position, turn_id=context.turn_id)) or 1
    found: list[StoredMessage] = []
    while before > 1 and len(found) < max_results:
        after = max(0, before - 1 - BATCH)
        found += await context.read(
            partial(
                messages.search_messages,
                conversation_id=context.conversation_id,
                terms=terms,
                after_position=after,
                before_position=before,
                limit=max_results - len(found),
            ),
        )
        before = after + 1
    return found


def _show(message: StoredMessage, terms: list[str]) -> str:
    text = " ".join(message.text.split())
    lower = text.lower()
    first = min(max(0, lower.find(term)) for term in terms)
    start = max(0, first - LEAD_CHARS)
    end = start + SNIPPET_CHARS
    shown = f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
    return f"[{message.position}] {message.role}, {message.created_at:%Y-%m-%d}: {shown}"
