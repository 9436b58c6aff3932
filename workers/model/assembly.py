"""One answer put together from the chunks of its stream: chunks in, events out, no I/O."""

from shared.errors import ModelStreamError
from workers.context.estimate import estimate_messages, estimate_tokens, estimate_tools
from workers.model.json_values import as_count, as_list, as_object, as_text
from workers.model.surrogates import SurrogateJoiner, join_surrogates
from workers.model.think import ThinkFilter
from workers.model.tool_calls import ToolCallAssembly
from workers.model.values import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ToolCallDelta,
    Usage,
)

# Reasons that some providers give when they, not the model, ended the answer.
BROKEN_REASONS = frozenset({"abort", "error", "insufficient_system_resource", "network_error"})


class Assembly:
    """The answer to one request as far as it is known."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls = ToolCallAssembly()
        self._joiner = SurrogateJoiner()
        self._think = ThinkFilter()
        self._finish_reason = ""
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the provider said that the answer is complete."""
        return bool(self._finish_reason)

    def feed(self, chunk: dict[str, object]) -> list[ModelEvent]:
        """Take in a chunk and return what is new.

        Raises ModelStreamError if the chunk has an unexpected shape.
        """
        # In a chunk of its own, in the last one, or with a running count in every chunk.
        self._usage = _read_usage(as_object(chunk.get("usage"))) or self._usage
        events: list[ModelEvent] = []
        for item in as_list(chunk.get("choices")):
            choice = as_object(item)
            # Answers of servers that do not stream have a message in place of the delta.
            delta = as_object(choice.get("delta") or choice.get("message"))
            self._take_content(delta, events)
            self._take_calls(as_list(delta.get("tool_calls")), events)
            self._finish_reason = as_text(choice.get("finish_reason")) or self._finish_reason
        return events

    def finish(self) -> list[ModelEvent]:
        """Return what was held back and, as the last item, the response.

        Raises ModelStreamError if the answer is not complete.
        """
        if not self._finish_reason:
            raise ModelStreamError(
                "The model's answer broke off before its end, more than once: try again"
            )
        if self._finish_reason in BROKEN_REASONS:
            raise ModelStreamError(
                f"The model's provider broke the answer off (finish reason {self._finish_reason})",
            )
        reasoning, text = self._think.finish()
        events: list[ModelEvent] = []
        self._add(reasoning, text, events)
        events.append(self._response())
        return events

    def _take_content(self, delta: dict[str, object], events: list[ModelEvent]) -> None:
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            self._reasoning.append(as_text(reasoning))
        # A model that declines says so in place of its content: to readers it is the answer.
        content = as_text(delta.get("content")) or as_text(delta.get("refusal"))
        if content and (content := self._joiner.feed(content)):
            self._add(*self._think.feed(content), events)

    def _take_calls(self, pieces: list[object], events: list[ModelEvent]) -> None:
        if pieces and not self._calls:
            self._add("", self._think.settle(), events)
            events.append(ToolCallDelta())
        for piece in pieces:
            self._calls.feed(as_object(piece))

    def _add(self, reasoning: str, text: str, events: list[ModelEvent]) -> None:
        if reasoning:
            self._reasoning.append(reasoning)
        if text:
            self._text.append(text)
            events.append(TextDelta(text))

    def _response(self) -> ModelResponse:
        text = "".join(self._text)
        reasoning = join_surrogates("".join(self._reasoning))
        calls = self._calls.finish()
        arguments = [part for call in calls for part in (call.name, call.arguments)]
        return ModelResponse(
            text=text,
            tool_calls=calls,
            finish_reason=self._finish_reason,
            usage=self._usage or _estimate_usage(self._request, [text, reasoning, *arguments]),
            reasoning=reasoning,
        )


def _read_usage(usage: dict[str, object]) -> Usage | None:
    input_tokens = as_count(usage.get("prompt_tokens"))
    output_tokens = as_count(usage.get("completion_tokens"))
    if not input_tokens:
        return None
    details = as_object(usage.get("prompt_tokens_details"))
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=as_count(cached),
    )


def _estimate_usage(request: ModelRequest, output: list[str]) -> Usage:
    return Usage(
        input_tokens=estimate_messages(request.messages) + estimate_tools(request.tools),
        output_tokens=sum(map(estimate_tokens, output)),
        is_estimated=True,
    )
