"""Turns as the API writes them down."""

from shared.ids import ConversationId, new_conversation_id, new_turn_id
from shared.repositories.turns import NewTurn
from shared.turn_state import TurnMode


def new_turn(conversation_id: ConversationId | None = None) -> NewTurn:
    """Return a turn to post, of a new conversation if none is given."""
    return NewTurn(
        id=new_turn_id(),
        conversation_id=conversation_id or new_conversation_id(),
        mode=TurnMode.REACT,
        input="question",
        instructions=None,
        model=None,
        tools=None,
        metadata={},
    )
