"""Cursors of lists: opaque to clients, and valid whatever becomes of the item they stand for."""

import base64
import binascii
from datetime import datetime

from shared.errors import InvalidInputError
from shared.ids import ConversationId
from shared.repositories.conversations import ConversationView


def encode_cursor(conversation: ConversationView) -> str:
    """Return the cursor that goes on after a conversation."""
    text = f"{conversation.updated_at.isoformat()} {conversation.id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_cursor(cursor: str) -> ConversationView:
    """Return the place in the list as a conversation, of which only that is known.

    Raises InvalidInputError.
    """
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii")
        moment, _, identifier = text.partition(" ")
        updated_at = datetime.fromisoformat(moment)
    except (binascii.Error, ValueError):
        raise _wrong() from None
    if updated_at.tzinfo is None or not identifier.isprintable():
        raise _wrong()
    return ConversationView(
        id=ConversationId(identifier),
        turn_count=0,
        metadata={},
        created_at=updated_at,
        updated_at=updated_at,
    )


def _wrong() -> InvalidInputError:
    return InvalidInputError("after must be the `next` of a list of conversations")
