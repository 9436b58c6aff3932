"""The vocabulary of failure, as HTTP-free types.

`TurnmillError` is the root of faults; `Stop` is the root of what ends a turn on purpose.
The API maps types to status codes in one table; retries are decided by `retryable`.
"""

from typing import ClassVar


class TurnmillError(Exception):
    """Something went wrong."""

    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])

    @property
    def message(self) -> str:
        """The sentence shown to the user."""
        return str(self.args[0])


class ConfigurationError(TurnmillError):
    """A setting is missing or wrong."""

    code = "configuration_error"


class InvalidInputError(TurnmillError):
    """The request is well-formed but cannot be accepted."""

    code = "invalid_input"


class NotFoundError(TurnmillError):
    """There is no such thing."""

    code = "not_found"


class GoneError(TurnmillError):
    """The thing was there and is no longer."""

    code = "gone"


class ConflictError(TurnmillError):
    """The state of the thing does not allow this."""

    code = "conflict"


class ConversationBusyError(ConflictError):
    """The conversation already has an active turn."""

    code = "conversation_busy"


class TurnEndedError(ConflictError):
    """The turn has ended."""

    code = "turn_ended"

    def __init__(self, message: str | None = None, status: str = "") -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type["TurnEndedError"], tuple[str, str]]:
        return type(self), (self.message, self.status)


class ApprovalDecidedError(ConflictError):
    """The tool call was approved or refused before."""

    code = "approval_decided"


class InboxFullError(ConflictError):
    """The turn holds as many unread messages as it may."""

    code = "inbox_full"


class IdempotencyMismatchError(ConflictError):
    """The Idempotency-Key was used before with another body."""

    code = "idempotency_mismatch"


class UnavailableError(TurnmillError):
    """A part that this needs cannot be reached now."""

    retryable = True
    code = "unavailable"


class LeaseLostError(TurnmillError):
    """Another worker advances this now: stop, write nothing more."""

    code = "lease_lost"


class ModelError(TurnmillError):
    """The model call failed."""

    code = "model_error"
    # When the provider wants to be asked again, in seconds from then; None: it did not say.
    retry_after_s: float | None = None
    # Whether another model may well answer in its place.
    may_fall_back = False
    # Whether the provider said that asking again helps; None: it did not say.
    should_retry: bool | None = None

    @property
    def may_retry(self) -> bool:
        """Whether the same call may succeed in a while."""
        return self.retryable if self.should_retry is None else self.should_retry


class ModelUnavailableError(ModelError):
    """The model's server cannot be reached or is overloaded."""

    retryable = True
    may_fall_back = True
    code = "model_unavailable"


class ModelTimeoutError(ModelError):
    """The model did not answer in time."""

    retryable = True
    may_fall_back = True
    code = "model_timeout"


class ModelRateLimitError(ModelError):
    """The model's provider refuses more requests for now."""

    retryable = True
    may_fall_back = True
    code = "rate_limit_exceeded"


class ModelAuthenticationError(ModelError):
    """The model's provider refuses the key."""

    code = "model_authentication"


class ModelRequestError(ModelError):
    """The model's provider refuses the request."""

    code = "model_request"


class UnsupportedParameterError(ModelRequestError):
    """The model's provider does not know a parameter of the request.

    parameter: its name, such as max_tokens; "" if that is not known.
    """

    code = "model_parameter"

    def __init__(self, message: str | None = None, parameter: str = "") -> None:
        super().__init__(message)
        self.parameter = parameter

    def __reduce__(self) -> tuple[type["UnsupportedParameterError"], tuple[str, str]]:
        return type(self), (self.message, self.parameter)


class ContextLengthError(ModelError):
    """The request does not fit the model's window.

    prompt_tokens, window_tokens: as the provider stated them; None if it did not.
    """

    code = "context_length_exceeded"

    def __init__(
        self,
        message: str | None = None,
        prompt_tokens: int | None = None,
        window_tokens: int | None = None,
    ) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.window_tokens = window_tokens

    def __reduce__(self) -> tuple[type["ContextLengthError"], tuple[str, int | None, int | None]]:
        return type(self), (self.message, self.prompt_tokens, self.window_tokens)


class ModelStreamError(ModelError):
    """The model's answer broke off or could not be read."""

    retryable = True
    code = "model_stream"


class StructuredAnswerError(ModelError):
    """The model gave no answer of the form that was asked for."""

    code = "structured_answer"


class ToolError(TurnmillError):
    """A tool call failed; the message is shown to the model as the tool's result."""

    code = "tool_error"


class Stop(Exception):  # noqa: N818 - a stop is not an error
    """The turn ends here on purpose."""


class Cancelled(Stop):
    """A cancel was requested for the turn."""


class Parked(Stop):
    """The turn waits for tool calls that a person or another worker settles."""


class Deferred(Stop):
    """There is no room for the turn's next model call: it is parked for so many seconds."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(delay_s)
        self.delay_s = delay_s


class HandedOver(Stop):
    """The process drains: the lease was released at a journal point for another worker."""


class DeadlinePassed(Stop):
    """The turn has reached its deadline."""
