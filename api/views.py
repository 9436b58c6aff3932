"""What the API answers."""

from datetime import datetime
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel

from shared.attachment import Attachment
from shared.ids import ConversationId, FileId, InjectionId, MessageId, ToolCallId, TurnId
from shared.repositories.conversations import ConversationView
from shared.repositories.files import FileView
from shared.repositories.injections import StoredInjection
from shared.repositories.messages import StoredMessage
from shared.repositories.model_configs import ModelConfig
from shared.repositories.summaries import Checkpoint
from shared.repositories.tool_calls import StoredToolCall
from shared.repositories.turns import TurnView
from shared.snapshot import describe_approvals, describe_calls, parse_arguments
from shared.turn_state import ApprovalState, InjectionState, TurnMode, TurnStatus

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """A part of a list; `next` is what `after` takes to go on, null at the end."""

    items: list[T]
    next: str | None


class Cancel(BaseModel):
    """Who had a turn cancelled, and why."""

    by: str | None
    reason: str | None


class Turn(BaseModel):
    """A turn."""

    id: TurnId
    conversation_id: ConversationId
    status: TurnStatus
    # Open turns of the conversation that come first; null unless queued.
    queue_position: int | None
    phase: str | None
    mode: TurnMode
    attempt: int
    answer: str | None
    usage: dict[str, object] | None
    # `{type, message}`
    error: dict[str, object] | None
    cancel: Cancel | None
    iterations: int | None
    compacted: bool
    # Tool calls as `step` events show them.
    steps: list[dict[str, object]]
    # Tool calls that a person has to approve, as `approval` events show them.
    approvals: list[dict[str, object]]
    # Images of the input.
    attachments: tuple[Attachment, ...]
    metadata: dict[str, object]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Conversation(BaseModel):
    """A conversation."""

    id: ConversationId
    turn_count: int
    metadata: dict[str, object]
    created_at: datetime
    updated_at: datetime


class Message(BaseModel):
    """A message of a conversation."""

    id: MessageId
    position: int
    role: str
    kind: str
    content: str
    attachments: tuple[Attachment, ...]
    turn_id: TurnId
    created_at: datetime


class Summary(BaseModel):
    """What stands for all messages of a conversation up to a position, in requests to models."""

    # Of the newest message it stands for; it comes right after that one.
    position: int
    role: Literal["system"] = "system"
    kind: Literal["summary"] = "summary"
    # "" where the messages were left out.
    content: str
    # llm or truncate
    method: str
    # Size of the content.
    tokens: int
    # The model that wrote it.
    model: str | None
    created_at: datetime | None


class File(BaseModel):
    """An uploaded file."""

    id: FileId
    mime_type: str
    size_bytes: int
    created_at: datetime


class Injection(BaseModel):
    """A message that was sent to an open turn."""

    id: InjectionId
    turn_id: TurnId
    state: InjectionState
    content: str
    created_at: datetime
    settled_at: datetime | None


class Approval(BaseModel):
    """A tool call that a person has to approve."""

    tool_call_id: ToolCallId
    tool_name: str
    # The arguments as JSON; what is no JSON as text.
    args: object
    state: ApprovalState
    reason: str | None
    # Until when it could be approved.
    expires_at: datetime | None


class Model(BaseModel):
    """A model configuration."""

    name: str
    role: str | None
    base_url: str | None
    api_key_env: str | None
    context_size: int | None
    max_output_tokens: int | None
    tool_call: bool | None
    json_mode: bool | None
    fallback: str | None
    max_in_flight: int | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    created_at: datetime | None
    updated_at: datetime | None


class Problem(BaseModel):
    """An error, as RFC 9457 has it, with the `error` member of the OpenAI API."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    error: dict[str, object]


def show_turn(
    turn: TurnView,
    *,
    calls: list[StoredToolCall],
    queue_position: int | None,
) -> Turn:
    """Return the turn as clients see it."""
    is_cancelled = turn.status is TurnStatus.CANCELLED
    return Turn(
        id=turn.id,
        conversation_id=turn.conversation_id,
        status=turn.status,
        queue_position=queue_position if turn.status is TurnStatus.QUEUED else None,
        phase=turn.phase,
        mode=turn.mode,
        attempt=turn.attempt,
        answer=turn.answer,
        usage=turn.usage,
        error=turn.error,
        cancel=Cancel(by=turn.cancel_by, reason=turn.cancel_reason) if is_cancelled else None,
        iterations=turn.iterations,
        compacted=turn.compacted,
        steps=describe_calls(calls),
        approvals=describe_approvals(calls),
        attachments=turn.attachments,
        metadata=turn.metadata,
        created_at=turn.created_at,
        started_at=turn.started_at,
        finished_at=turn.finished_at,
    )


def show_conversation(conversation: ConversationView) -> Conversation:
    """Return the conversation as clients see it."""
    return Conversation.model_validate(conversation, from_attributes=True)


def show_message(message: StoredMessage) -> Message:
    """Return the message as clients see it."""
    return Message(
        id=message.id,
        position=message.position,
        role=message.role,
        kind=message.kind,
        content=message.text,
        attachments=message.attachments,
        turn_id=message.turn_id,
        created_at=message.created_at,
    )


def show_summary(checkpoint: Checkpoint) -> Summary:
    """Return the checkpoint as clients see it."""
    return Summary(
        position=checkpoint.until_position,
        content=checkpoint.content,
        method=checkpoint.method,
        tokens=checkpoint.tokens,
        model=checkpoint.model,
        created_at=checkpoint.created_at,
    )


def show_file(file: FileView) -> File:
    """Return the file as clients see it."""
    return File.model_validate(file, from_attributes=True)


def show_injection(injection: StoredInjection) -> Injection:
    """Return the injected message as clients see it."""
    return Injection.model_validate(injection, from_attributes=True)


def show_approval(call: StoredToolCall) -> Approval:
    """Return what was decided about the call as clients see it. Somebody has to approve it."""
    if call.approval is None:
        raise ValueError(f"nobody has to approve {call.id}")
    return Approval(
        tool_call_id=call.id,
        tool_name=call.name,
        args=parse_arguments(call.arguments),
        state=call.approval,
        reason=call.approval_reason,
        expires_at=call.expires_at,
    )


def show_model(config: ModelConfig) -> Model:
    """Return the model configuration as clients see it."""
    return Model.model_validate(config, from_attributes=True)
