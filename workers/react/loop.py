"""The ReAct loop: model calls with tools until an answer stands, then the answer's text.

Each turn of the loop ends at a journal point: all it did is on record, so that any worker can
go on from there, and nothing on record is done again.
"""

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal

from shared.errors import ContextLengthError, ModelError, ModelStreamError
from shared.events import Phase, Step
from shared.repositories.endings import Completion
from shared.repositories.journal import Entry
from shared.repositories.tool_calls import StoredToolCall
from shared.snapshot import approval_event, call_event
from shared.turn_state import ToolCallState
from workers.context.hints import Hint
from workers.context.messages import ToolCall
from workers.model.together import together
from workers.model.values import (
    ModelRequest,
    ModelResponse,
    Purpose,
    TextDelta,
    ToolCallDelta,
)
from workers.react import prompts
from workers.react.answer_stream import AnswerStream
from workers.react.notes import LoopLimits, checklist, due_notes, reformat
from workers.react.offered_tools import OfferedTools
from workers.react.transcript import Note, Transcript
from workers.react.turn_context import TurnContext
from workers.runtime.model_calls import ModelCalls
from workers.runtime.progress import Progress
from workers.runtime.turn_run import TurnRun, join_injections
from workers.tools.execution import route_call, run_tool
from workers.tools.tool import Route, ToolContext

# Whether a call of its own writes the answer; `auto`: if tools were used.
Synthesis = Literal["auto", "always", "never"]

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
        context: TurnContext,
        calls: ModelCalls,
        tools: OfferedTools,
        limits: LoopLimits,
        synthesis: Synthesis,
        tool_timeout_s: float,
    ) -> None:
        self._run = run
        self._progress = progress
        self._transcript = transcript
        self._context = context
        self._calls = calls
        self._tools = tools
        self._limits = limits
        self._synthesis = synthesis
        self._tool_timeout_s = tool_timeout_s
        self._answer = AnswerStream(run, progress)
        # What notes remind of.
        self._query = run.turn.input

    async def run(self) -> None:
        """Go on until the turn is completed.

        Raises what stops it: a Stop, LeaseLostError, or a ModelError that fails the turn.
        """
        try:
            await self._run_to_end()
        finally:
            # Nothing of the answer may follow on what is said of the turn's end.
            await self._answer.settle()

    async def _run_to_end(self) -> None:
        await self._take_up_calls()
        while True:
            if self._run.lease.pending_injections:
                await self._commit_injections()
            if self._transcript.draft is not None:
                is_done = await self._synthesize()
            elif self._transcript.iterations >= self._limits.max_iterations:
                self._transcript.draft = prompts.ITERATION_LIMIT_DRAFT.format(
                    limit=self._limits.max_iterations,
                )
                is_done = False
            else:
                is_done = await self._iterate()
            if is_done:
                return

    async def _iterate(self) -> bool:
        """Make one model call and run the tools it asks for; True if the turn is completed."""
        transcript = self._transcript
        for note in due_notes(transcript, self._limits, self._query):
            await self._add_note(note)
        transcript.iterations += 1
        await self._run.emit(
            Step(type="thinking", status="start", iteration=transcript.iterations),
        )
        started_at = time.monotonic()
        is_live = self._is_answer_live
        response = await self._call(
            self._context.loop_request,
            hint="react_iteration",
            is_live=is_live,
        )
        if response.tool_calls:
            await self._run_round(response)
            return False
        if objection := self._objection(response):
            await self._object(response, objection)
            return False
        if is_live:
            if not self._answer.text:
                # Taken as the answer though it is not in the form that was asked for.
                await self._answer.add(response.text)
            return await self._complete(response, "loop", started_at)
        await self._record(response, "loop", phase="synthesizing")
        transcript.add_response(response.text, [])
        return False

    @property
    def _is_answer_live(self) -> bool:
        """Whether the next response, if it calls no tool, is the turn's answer as it comes."""
        if self._synthesis == "auto":
            return not self._transcript.has_used_tools
        return self._synthesis == "never"

    def _objection(self, response: ModelResponse) -> Note | None:
        """Return what to tell the model in place of taking its answer."""
        if response.is_malformed:
            return reformat(self._transcript, self._limits)
        return checklist(self._transcript, self._limits, self._query)

    async def _object(self, response: ModelResponse, note: Note) -> None:
        """Keep an answer that is not taken, and what is said of it, in the loop."""
        await self._answer.restart(note.kind)
        entries = [
            self._response_entry(response, "loop"),
            self._transcript.note_entry(note),
        ]
        await self._run.record_response(entries)
        self._transcript.add_response(response.text, [])
        self._transcript.add_note(note)

    async def _add_note(self, note: Note) -> None:
        await self._run.record_response([self._transcript.note_entry(note)])
        self._transcript.add_note(note)

    async def _synthesize(self) -> bool:
        """Write the answer from what the loop found; True if the turn is completed."""
        await self._run.emit(Phase(phase="synthesizing"))
        started_at = time.monotonic()
        try:
            response = await self._call(
                self._context.synthesis_request,
                hint="general",
                is_live=True,
            )
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
        entry = self._response_entry(response, purpose)
        if await self._end([entry], started_at, reasoning=response.reasoning):
            return True
        await self._answer.restart("injected_message")
        self._transcript.add_response(response.text, [])
        await self._commit_injections([entry])
        return False

    async def _answer_with_draft(self, started_at: float) -> bool:
        await self._answer.restart("model_stream")
        await self._answer.add(self._transcript.draft or "")
        if await self._end([], started_at):
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

    async def _call(
        self,
        build: Callable[[], ModelRequest],
        *,
        hint: Hint,
        is_live: bool,
    ) -> ModelResponse:
        """Call the model; while it cannot be called, its fallback, until the attempt ends."""
        try:
            return await self._call_fitting(build, hint=hint, is_live=is_live)
        except ModelError as error:
            name = self._context.fall_back() if error.may_fall_back else None
            if name is None:
                raise
            reason = error
        await self._run.emit(Phase(phase="falling_back", model=name, reason=reason.code))
        try:
            return await self._call_fitting(build, hint=hint, is_live=is_live)
        except ModelError as error:
            error.args = (f"{error.message}. It was called as a fallback: {reason.message}",)
            raise

    async def _call_fitting(
        self,
        build: Callable[[], ModelRequest],
        *,
        hint: Hint,
        is_live: bool,
    ) -> ModelResponse:
        """Call the model with a request that fits; refused for its length, with half of it."""
        request = await self._context.fit(build(), hint=hint)
        try:
            return await self._try(request, is_live=is_live)
        except ContextLengthError:
            await self._answer.restart("context_length")
        half = await self._context.fit_half(build, request, hint=hint)
        return await self._try(half, is_live=is_live)

    async def _try(self, request: ModelRequest, *, is_live: bool) -> ModelResponse:
        """Call the model, publishing its text if is_live; a broken answer is asked for again."""
        for tries in range(STREAM_TRIES - 1):
            try:
                return await self._run.lease.run(self._stream(request, is_live=is_live))
            except ModelStreamError:
                await self._answer.restart("model_stream")
            await self._run.lease.run(self._calls.pause(tries))
        return await self._run.lease.run(self._stream(request, is_live=is_live))

    async def _stream(self, request: ModelRequest, *, is_live: bool) -> ModelResponse:
        async with aclosing(self._calls.stream(request)) as events:
            async for event in events:
                if isinstance(event, ModelResponse):
                    return _checked(event, request)
                if not is_live:
                    continue
                if isinstance(event, TextDelta):
                    await self._answer.add(event.text)
                elif isinstance(event, ToolCallDelta):
                    await self._answer.restart("tool_call")
        raise ModelStreamError

    async def _run_round(self, response: ModelResponse) -> None:
        planned = self._transcript.plan_calls(response.tool_calls, self._route)
        calls = await self._record(response, "loop", planned)
        self._transcript.add_response(response.text, calls)
        await self._run.emit(
            *(call_event(call, reasoning=response.reasoning or response.text) for call in calls),
            *(event for call in calls if (event := approval_event(call))),
        )
        # Only now: what others say of them comes after.
        await self._run.ring_for(calls)
        await self._run_calls([call for call in calls if not call.is_delegated])
        await self._await_delegated()
        self._run.lease.check()

    def _route(self, call: ToolCall) -> Route:
        return route_call(self._tools.registry, call.name, call.arguments, self._tool_timeout_s)

    async def _await_delegated(self) -> None:
        """Finish what others settle of the round; the turn is parked until they have."""
        if not self._transcript.open_calls:
            return
        self._transcript.take_settled(await self._run.await_delegated())
        approved = self._transcript.open_calls
        if approved:
            await self._start_calls(approved)

    async def _take_up_calls(self) -> None:
        """Finish the round that an earlier attempt left."""
        rerun: list[StoredToolCall] = []
        for call in self._transcript.open_calls:
            if call.is_delegated:
                continue
            tool = self._tools.registry.find(call.name)
            was_started = call.state is ToolCallState.RUNNING
            # A tool may be gone with its server.
            if was_started and (tool is None or not tool.is_repeatable):
                unknown = call.finished(
                    state=ToolCallState.UNKNOWN,
                    result=prompts.OUTCOME_UNKNOWN,
                    is_error=True,
                )
                await self._finish(unknown)
            else:
                rerun.append(call)
        if rerun:
            await self._start_calls(rerun)
        await self._await_delegated()
        self._run.lease.check()

    async def _start_calls(self, calls: list[StoredToolCall]) -> None:
        """Run calls that are on record as not, or not any more, running."""
        await self._run.start_tool_calls([call.id for call in calls])
        await self._run.emit(*map(call_event, calls))
        await self._run_calls(calls)

    async def _run_calls(self, calls: list[StoredToolCall]) -> None:
        if not calls:
            return
        # Last: publishing may have taken its time.
        self._run.lease.check_before_tool()
        await self._run.lease.run(together(self._run_call(call) for call in calls))

    async def _run_call(self, call: StoredToolCall) -> None:
        turn = self._run.turn
        outcome = await run_tool(
            self._tools.registry,
            call.name,
            call.arguments,
            ToolContext(
                tool_call_id=call.id,
                turn_id=turn.id,
                conversation_id=turn.conversation_id,
                read=self._run.read,
            ),
            timeout_s=self._tool_timeout_s,
        )
        await self._finish(
            call.finished(
                state=ToolCallState.DONE,
                result=outcome.content,
                is_error=outcome.is_error,
                elapsed_s=outcome.elapsed_s,
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
        await self._run.emit(call_event(call))

    async def _record(
        self,
        response: ModelResponse,
        purpose: Purpose,
        calls: list[StoredToolCall] | None = None,
        *,
        phase: str | None = None,
    ) -> list[StoredToolCall]:
        entry = self._response_entry(response, purpose)
        return await self._run.record_response([entry], calls or [], phase=phase)

    def _response_entry(self, response: ModelResponse, purpose: Purpose) -> Entry:
        return self._transcript.response_entry(response, purpose, self._progress.take_usage())

    async def _commit_injections(self, entries: list[Entry] | None = None) -> None:
        taken = await self._run.commit_injections(
            lambda items: [self._transcript.injections_entry(items)],
            entries or [],
        )
        if taken:
            self._transcript.add_injections(join_injections(taken))
        self._run.lease.check()


def _checked(response: ModelResponse, request: ModelRequest) -> ModelResponse:
    # Tool calls that nobody offered are no answer.
    has_calls = bool(request.tools and response.tool_calls)
    if not response.text.strip() and not has_calls:
        raise ModelStreamError(
            f"The model's answer is empty (finish reason {response.finish_reason!r}): try again,"
            " or use another model",
        )
    return response


def _seconds_since(started_at: float) -> float:
    return round(time.monotonic() - started_at, 3)
