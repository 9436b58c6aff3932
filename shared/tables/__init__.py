"""The schema: one table per module. Importing this package registers all of them."""

from shared.tables.base import Base
from shared.tables.conversation import Conversation
from shared.tables.file import File
from shared.tables.injection import Injection
from shared.tables.journal_entry import JournalEntry
from shared.tables.message import Message
from shared.tables.model_config import ModelConfig
from shared.tables.plan_step import PlanStep
from shared.tables.summary import Summary
from shared.tables.token_factors import TokenFactors
from shared.tables.tool_call import ToolCall
from shared.tables.turn import Turn

__all__ = [
    "Base",
    "Conversation",
    "File",
    "Injection",
    "JournalEntry",
    "Message",
    "ModelConfig",
    "PlanStep",
    "Summary",
    "TokenFactors",
    "ToolCall",
    "Turn",
]
