"""The ReAct loop: model calls with tools until an answer stands, then the answer's text.

Each turn of the loop ends at a journal point: all it did is on record, so that any worker can
go on from there, and nothing on record is done again.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable
from contextlib import aclosing
from typing import Literal

from shared.errors import ModelStreamError
from shared.events import OBSERVATION_CHARS, Compact, Phase, Step
from shared.repositories.endings import Completion
from shared.repositories.journal import Entry, StoredToolCall
from shared.snapshot import parse_arguments
from shared.turn_state import ToolCallState
from workers.context.compaction import Compaction
from workers.context.guard import ContextGuard
from workers.context.messages import Message
from workers.model.client import ModelClient
from workers.model.values import (
    ModelRequest,
    ModelResponse,
    ModelTarget,
    Purpose,
    TextDelta,
    ToolCallDelta,
)
from workers.react import prompts
from workers.react.answer_stream import AnswerStream
from workers.react.synthesis import synthesis_messages
from workers.react.transcript import Transcript, finished_call, unknown_outcome
from workers.runtime.progress import Progress
from workers.runtime.turn_run import TurnRun, join_injections
from workers.tools.execution import run_tool
from workers.tools.registry import ToolRegistry
from workers.tools.tool import ToolContext

# A broken answer is asked for once more.
STREAM_TRIES = 2


class ReactLoop:
    """The loop of one attempt."""

    def __init__(
        self,
        run: TurnRun,
        progress: Progress,
        transcript: Transcript,
        *,
        history: tuple[Message, ...],
        models: ModelClient,
        target: ModelTarget,
        guard: ContextGuard,
        tools: ToolRegistry,
        max_iterations: int,
        tool_timeout_s: float,
    ) -> None:
        self._run = run
        self._progress = progress
        self._transcript = transcript
        self._history = history
        self._models = models
        self._target = target
        self._guard = guard
        self._tools = tools
        self._max_iterations = max_iterations
        self._tool_timeout_s = tool_timeout_s
        self._answer = AnswerStream(run, progress)
        # Journaled with the next response.
        self._compactions: list[Entry] = []

    async def run(self) -> None:
        """Go on until the turn is completed.

        Raises what stops it: a Stop, LeaseLostError, or a ModelError that fails the turn.
        """
        await self._take_up_calls()
        while True:
            if self._run.lease.pending_injections:
                await self._commit_injections()
            if self._transcript.draft is not None:
                is_done = await self._synthesize()
            elif self._transcript.iterations >= self._max_iterations:
                self._transcript.draft = prompts.ITERATION_LIMIT_DRAFT.format(
                    limit=self._max_iterations,
                )
                is_done = False
            else:
                is_done = await self._iterate()
            if is_done:
                return

    async def _iterate(self) -> bool:
        """Make one model call and run the tools it asks for; True if the turn is completed."""
        transcript = self._transcript
        transcript.iterations += 1
        await self._run.emit(
            Step(type="thinking", status="start", iteration=transcript.iterations),
        )
        started_at = time.monotonic()
        is_live = not transcript.has_used_tools
        request = await self._fit(self._loop_request(), hint="react_iteration")
        response = await self._call(request, is_live=is_live)
        if response.tool_calls:
            await self._run_round(response)
            return False
        if is_live:
            return await self._complete(response, "loop", started_at)
        await self._record(response, "loop", phase="synthesizing")
        transcript.add_response(response.text, [])
        return False

    async def _synthesize(self) -> bool:
        """Write the answer from what the loop found; True if the turn is completed."""
        await self._run.emit(Phase(phase="synthesizing"))
        started_at = time.monotonic()
        messages = synthesis_messages(
            self._run.turn,
            self._history,
            self._transcript.messages,
            self._transcript.draft or "",
        )
        request = ModelRequest(target=self._target, messages=messages, purpose="synthesis")
        fitted = await self._fit(request, hint="general")
        try:
            response = await self._call(fitted, is_live=True)
        except ModelStreamError:
            if not self._transcript.draft:
                raise
            return await self._answer_with_draft(started_at)
        return await self._complete(response, "synthesis", started_at)

    async def _complete(
        self,
        response: ModelResponse,
        purpose: Purpose,
        started_at: float,
    ) -> bool:
        """End the turn with the answer that was streamed, unless an injected message came first."""
        entry = self._transcript.response_entry(response, purpose)
        entries = [*self._take_compactions(), entry]
        if await self._end(entries, started_at, reasoning=response.reasoning):
            return True
        await self._answer.restart("injected_message")
        self._transcript.add_response(response.text, [])
        await self._commit_injections(entries)
        return False

    async def _answer_with_draft(self, started_at: float) -> bool:
        await self._answer.restart("model_stream")
        await self._answer.add(self._transcript.draft or "")
        if await self._end(self._take_compactions(), started_at):
            return True
        await self._answer.restart("injected_message")
        await self._commit_injections()
        return False

    async def _end(self, entries: list[Entry], started_at: float, *, reasoning: str = "") -> bool:
        step = Step(
            type="answer",
            status="done",
            iteration=self._transcript.iterations,
            reasoning=reasoning or None,
            elapsed_s=_seconds_since(started_at),
        )
        completion = Completion(
            answer=self._answer.text,
            usage=self._progress.usage(),
            iterations=self._transcript.iterations,
            compacted=self._transcript.was_compacted,
        )
        before = (*await self._answer.finish(), step)
        return await self._run.complete(completion, entries, before)

    async def _call(self, request: ModelRequest, *, is_live: bool) -> ModelResponse:
        """Call the model, publishing its text if is_live; a broken answer is asked for again."""
        for _ in range(STREAM_TRIES - 1):
            try:
                return await self._run.lease.run(self._stream(request, is_live=is_live))
            except ModelStreamError:
                await self._answer.restart("model_stream")
        return await self._run.lease.run(self._stream(request, is_live=is_live))

    async def _stream(self, request: ModelRequest, *, is_live: bool) -> ModelResponse:
        async with aclosing(self._models.stream(request)) as events:
            async for event in events:
                if isinstance(event, ModelResponse):
                    self._progress.count(request.purpose, event.usage)
                    return _checked(event, request)
                if not is_live:
                    continue
                if isinstance(event, TextDelta):
                    await self._answer.add(event.text)
                elif isinstance(event, ToolCallDelta):
                    await self._answer.restart("tool_call")
        raise ModelStreamError

    async def _run_round(self, response: ModelResponse) -> None:
        calls = self._transcript.plan_calls(response.tool_calls)
        await self._record(response, "loop", calls)
        self._transcript.add_response(response.text, calls)
        await self._run_calls(calls, reasoning=response.reasoning or response.text)
        self._run.lease.check()

    async def _take_up_calls(self) -> None:
        """Finish the round that an earlier attempt left."""
        rerun: list[StoredToolCall] = []
        for call in self._transcript.open_calls:
            tool = self._tools.find(call.name)
            was_started = call.state is ToolCallState.RUNNING
            if was_started and tool is not None and not tool.is_repeatable:
                await self._finish(unknown_outcome(call, prompts.OUTCOME_UNKNOWN))
            else:
                rerun.append(call)
        if rerun:
            await self._run.start_tool_calls([call.id for call in rerun])
            await self._run_calls(rerun)
            self._run.lease.check()

    async def _run_calls(self, calls: list[StoredToolCall], *, reasoning: str = "") -> None:
        self._run.lease.check_before_tool()
        await self._run.emit(
            *(_call_event(call, status="start", reasoning=reasoning) for call in calls),
        )
        await self._run.lease.run(_all(self._run_call(call) for call in calls))

    async def _run_call(self, call: StoredToolCall) -> None:
        turn = self._run.turn
        outcome = await run_tool(
            self._tools,
            call.name,
            call.arguments,
            ToolContext(
                tool_call_id=call.id,
                turn_id=turn.id,
                conversation_id=turn.conversation_id,
            ),
            timeout_s=self._tool_timeout_s,
        )
        await self._finish(
            finished_call(
                call,
                state=ToolCallState.DONE,
                result=outcome.content,
                is_error=outcome.is_error,
                elapsed_s=round(outcome.elapsed_s, 3),
            ),
        )

    async def _finish(self, call: StoredToolCall) -> None:
        await self._run.finish_tool_call(
            call.id,
            state=call.state,
            result=call.result or "",
            is_error=call.is_error,
            elapsed_s=call.elapsed_s or 0.0,
        )
        self._transcript.finish_call(call)
        await self._run.emit(_call_event(call, status="done"))

    async def _record(
        self,
        response: ModelResponse,
        purpose: Purpose,
        calls: list[StoredToolCall] | None = None,
        *,
        phase: str | None = None,
    ) -> None:
        entry = self._transcript.response_entry(response, purpose)
        entries = [*self._take_compactions(), entry]
        await self._run.record_response(entries, calls or [], phase=phase)

    async def _commit_injections(self, entries: list[Entry] | None = None) -> None:
        taken = await self._run.commit_injections(
            lambda items: [self._transcript.injections_entry(items)],
            entries or [],
        )
        if taken:
            self._transcript.add_injections(join_injections(taken))
        self._run.lease.check()

    async def _fit(self, request: ModelRequest, *, hint: str) -> ModelRequest:
        fitted = self._guard.fit(request, hint=hint)
        if fitted.compaction is not None:
            await self.note_compaction(fitted.compaction)
        return fitted.request

    async def note_compaction(self, compaction: Compaction) -> None:
        """Publish a compaction and have it journaled."""
        event = _compact_event(compaction)
        self._compactions.append(self._transcript.compaction_entry(event.data()))
        await self._run.emit(event)

    def _take_compactions(self) -> list[Entry]:
        taken, self._compactions = self._compactions, []
        return taken

    def _loop_request(self) -> ModelRequest:
        turn = self._run.turn
        system = prompts.system_prompt(prompts.SYSTEM, turn.instructions)
        return ModelRequest(
            target=self._target,
            messages=(
                Message(role="system", content=system, origin="instructions"),
                *self._history,
                Message(role="user", content=turn.input, pinned=True, origin="query"),
                *self._transcript.messages,
            ),
            tools=self._tools.schemas(),
            purpose="loop",
        )


async def _all(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Run works at the same time; the first failure ends all."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _checked(response: ModelResponse, request: ModelRequest) -> ModelResponse:
    # Tool calls that nobody offered are no answer.
    has_calls = bool(request.tools and response.tool_calls)
    if not response.text.strip() and not has_calls:
        raise ModelStreamError(
            f"The model's answer is empty (finish reason {response.finish_reason!r}): try again,"
            " or use another model",
        )
    return response


def _call_event(
    call: StoredToolCall, *, status: Literal["start", "done"], reasoning: str = ""
) -> Step:
    result = call.result[:OBSERVATION_CHARS] if call.result is not None else None
    return Step(
        type="iteration",
        status=status,
        iteration=call.iteration,
        tool_call_id=call.id,
        tool_name=call.name,
        tool_args=parse_arguments(call.arguments),
        observation=None if call.is_error else result,
        error=result if call.is_error else None,
        reasoning=reasoning or None,
        elapsed_s=call.elapsed_s,
    )


def _compact_event(compaction: Compaction) -> Compact:
    return Compact(
        layer=compaction.layer,
        hint=compaction.hint,
        purpose=compaction.purpose,
        original_messages=compaction.original_messages,
        kept_messages=compaction.kept_messages,
        tokens_before=compaction.tokens_before,
        tokens_after=compaction.tokens_after,
        method=compaction.method,
        unpinned=compaction.unpinned or None,
        reason=compaction.reason or None,
    )


def _seconds_since(started_at: float) -> float:
    return round(time.monotonic() - started_at, 3)
