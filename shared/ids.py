"""Identifiers: a type prefix and a UUIDv7, so that ids sort by creation time.

Each kind of id is a type of its own; nothing parses an id to learn a fact.
"""

import os
import time
from typing import NewType

ConversationId = NewType("ConversationId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
InjectionId = NewType("InjectionId", str)
ToolCallId = NewType("ToolCallId", str)
FileId = NewType("FileId", str)


def new_conversation_id() -> ConversationId:
    """Return a fresh `conv_…` id."""
    return ConversationId(f"conv_{uuid7_hex()}")


def new_turn_id() -> TurnId:
    """Return a fresh `turn_…` id."""
    return TurnId(f"turn_{uuid7_hex()}")


def new_message_id() -> MessageId:
    """Return a fresh `msg_…` id."""
    return MessageId(f"msg_{uuid7_hex()}")


def new_injection_id() -> InjectionId:
    """Return a fresh `inj_…` id."""
    return InjectionId(f"inj_{uuid7_hex()}")


def new_tool_call_id() -> ToolCallId:
    """Return a fresh `tool_…` id, the idempotency key a tool can see."""
    return ToolCallId(f"tool_{uuid7_hex()}")


def new_file_id() -> FileId:
    """Return a fresh `file_…` id."""
    return FileId(f"file_{uuid7_hex()}")


def uuid7_hex() -> str:
    """Return a UUIDv7 as 32 hexadecimal digits. Source: RFC 9562, section 5.7."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    value = milliseconds << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{value:032x}"
