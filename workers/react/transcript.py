"""The transcript of a turn: the loop's messages as they grow, and as they are read back.

An attempt that goes on after another folds the journal into the same transcript that the
other one had, up to its last entry.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shared.ids import new_tool_call_id
from shared.repositories.injections import StoredInjection
from shared.repositories.journal import Entry
from shared.repositories.tool_calls import StoredToolCall
from shared.text import storable
from shared.turn_state import FINISHED_STATES, ApprovalState, ToolCallState
from workers.context.messages import Message, ToolCall
from workers.context.summary import summary_message
from workers.model.values import ModelResponse, Purpose
from workers.react.prompts import INTERRUPT_MARK
from workers.runtime.progress import JournaledUsage, Progress
from workers.runtime.turn_run import join_injections
from workers.tools.tool import Route

NoteKind = Literal["reflection", "cycle", "checklist", "reformat"]
# A call's tool and its arguments in a form that does not depend on their order.
Fingerprint = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the loop tells the model."""

    kind: NoteKind
    text: str
    # Of this kind so far, as whoever decides that one is due counts them.
    count: int


@dataclass(slots=True)
class Transcript:
    """What the loop has done after the query, oldest first."""

    messages: list[Message] = field(default_factory=list)
    # Model calls of the loop so far.
    iterations: int = 0
    # Sequence number of the journal's next entry.
    next_seq: int = 1
    # Tool calls of the last response that have no result yet, in call order.
    open_calls: list[StoredToolCall] = field(default_factory=list)
    # Calls of the last response, finished or not, in call order.
    round_calls: list[StoredToolCall] = field(default_factory=list)
    # Of all calls so far, those that were compacted away included.
    fingerprints: list[Fingerprint] = field(default_factory=list)
    # The newest note's count, by kind.
    noted: Counter[NoteKind] = field(default_factory=Counter)
    # Whether the last thing the model was told is to give its answer in the right form.
    awaits_reformat: bool = False
    # The loop's own answer, while the turn's answer is still to be written.
    draft: str | None = None
    was_compacted: bool = False
    # Names of the tools that were picked for the turn, () for all; None: nobody picked yet.
    picked_tools: tuple[str, ...] | None = None

    @property
    def has_used_tools(self) -> bool:
        """Whether any tool was called."""
        return bool(self.fingerprints)

    def response_entry(
        self,
        response: ModelResponse,
        purpose: Purpose,
        usage: JournaledUsage,
    ) -> Entry:
        """Return the journal's entry for a response; it is folded by `add_response`.

        usage: all that was used since the entry before.
        """
        return self._entry(
            "response",
            {
                "iteration": self.iterations,
                "purpose": purpose,
                "text": storable(response.text),
                "reasoning": storable(response.reasoning),
                "finish_reason": storable(response.finish_reason),
                "usage": usage,
            },
        )

    def compaction_entry(
        self,
        event: dict[str, object],
        *,
        replaced: list[int],
        summary: str,
        usage: JournaledUsage,
    ) -> Entry:
        """Return the journal's entry for a compaction; folded by `replace`.

        event: the data of its event.
        replaced: indexes of the messages that are gone; none for one of the history.
        usage: all that was used since the entry before.
        """
        self.was_compacted = True
        work = {"replaced": replaced, "summary": summary} if replaced else {}
        return self._entry("compaction", {"event": event, "usage": usage, **work})

    def injections_entry(self, taken: list[StoredInjection]) -> Entry:
        """Return the journal's entry for injected messages; folded by `add_injections`."""
        return self._entry(
            "injections",
            {"ids": [item.id for item in taken], "text": join_injections(taken)},
        )

    def selection_entry(self, names: Sequence[str], usage: JournaledUsage) -> Entry:
        """Return the journal's entry for the tools that were picked."""
        return self._entry("selection", {"tools": list(names), "usage": usage})

    def usage_entry(self, usage: JournaledUsage) -> Entry:
        """Return the journal's entry for calls that led to nothing else."""
        return self._entry("usage", {"usage": usage})

    def note_entry(self, note: Note) -> Entry:
        """Return the journal's entry for a note; it is folded by `add_note`."""
        return self._entry("note", {"note": note.kind, "text": note.text, "count": note.count})

    def plan_calls(
        self,
        calls: Sequence[ToolCall],
        route: Callable[[ToolCall], Route],
    ) -> list[StoredToolCall]:
        """Return the tool calls of the response about to be added, with ids of their own.

        route: says how a call is to be run.
        """
        taken = {call.id for message in self.messages for call in message.tool_calls}
        return [
            _planned(
                StoredToolCall(
                    id=new_tool_call_id(),
                    iteration=self.iterations,
                    seq=seq,
                    call_id=_unique(storable(call.id), taken),
                    name=storable(call.name),
                    arguments=storable(call.arguments),
                    state=ToolCallState.READY,
                    result=None,
                    is_error=False,
                    elapsed_s=None,
                ),
                route(call),
            )
            for seq, call in enumerate(calls, start=1)
        ]

    def add_response(self, text: str, calls: list[StoredToolCall]) -> None:
        """Add a response of the loop; without tool calls its text is the draft."""
        self.awaits_reformat = False
        if not calls:
            self.draft = text
            return
        self.fingerprints += [(call.name, _canonical(call.arguments)) for call in calls]
        self.round_calls = calls
        self.open_calls = [call for call in calls if call.state not in FINISHED_STATES]
        asked = tuple(
            ToolCall(id=call.call_id, name=call.name, arguments=call.arguments) for call in calls
        )
        self.messages.append(Message(role="assistant", content=text or None, tool_calls=asked))
        if not self.open_calls:
            self._add_results()

    def finish_call(self, finished: StoredToolCall) -> None:
        """Take in a result; with the last one all are added, in call order."""
        self.round_calls = [
            finished if call.id == finished.id else call for call in self.round_calls
        ]
        self.open_calls = [call for call in self.open_calls if call.id != finished.id]
        if not self.open_calls:
            self._add_results()

    def take_settled(self, calls: Sequence[StoredToolCall]) -> None:
        """Take in how the calls of the last response stand: finished, or to be run now."""
        own = {call.id for call in self.open_calls}
        for call in calls:
            if call.id not in own:
                continue
            if call.state in FINISHED_STATES:
                self.finish_call(call)
            else:
                self.open_calls = [call if it.id == call.id else it for it in self.open_calls]

    def add_note(self, note: Note) -> None:
        """Add a note; a draft before it stays in the loop."""
        self._keep_draft()
        self.noted[note.kind] = note.count
        self.awaits_reformat = note.kind == "reformat"
        self.messages.append(Message(role="user", content=note.text))

    def add_injections(self, text: str) -> None:
        """Add injected messages as one of the user; a draft before them stays in the loop."""
        self._keep_draft()
        self.messages.append(
            Message(
                role="user",
                content=f"{INTERRUPT_MARK}\n\n{text}",
                pinned=True,
                origin="injection",
            ),
        )

    def replace(self, replaced: Collection[int], summary: str) -> None:
        """Put a summary in the place of messages; an empty one leaves them out."""
        gone = frozenset(replaced)
        before = [message for at, message in enumerate(self.messages) if at < min(gone)]
        after = [
            message for at, message in enumerate(self.messages) if at > min(gone) and at not in gone
        ]
        self.messages = [*before, *([summary_message(summary)] if summary else []), *after]

    def _keep_draft(self) -> None:
        if self.draft:
            self.messages.append(Message(role="assistant", content=self.draft))
        self.draft = None

    def _add_results(self) -> None:
        self.messages += [
            Message(role="tool", content=call.result or "", tool_call_id=call.call_id)
            for call in self.round_calls
        ]
        self.round_calls = []

    def _entry(self, kind: str, data: dict[str, object]) -> Entry:
        entry = Entry(seq=self.next_seq, kind=kind, data=data)
        self.next_seq += 1
        return entry


def fold(
    entries: Sequence[Entry],
    calls: Sequence[StoredToolCall],
    progress: Progress,
) -> Transcript:
    """Read a transcript back from the journal, counting its usage into progress.

    entries, calls: as the repository returns them, in order.
    """
    transcript = Transcript()
    for entry in entries:
        _fold_entry(transcript, entry, calls, progress)
        transcript.next_seq = entry.seq + 1
    return transcript


def _fold_entry(
    transcript: Transcript,
    entry: Entry,
    calls: Sequence[StoredToolCall],
    progress: Progress,
) -> None:
    data: Mapping[str, Any] = entry.data
    progress.merge_usage(data.get("usage", {}))
    if entry.kind == "usage":
        return
    if entry.kind == "injections":
        transcript.add_injections(data["text"])
    elif entry.kind == "note":
        transcript.add_note(Note(kind=data["note"], text=data["text"], count=data["count"]))
    elif entry.kind == "selection":
        transcript.picked_tools = tuple(data["tools"])
    elif entry.kind == "compaction":
        transcript.was_compacted = True
        if data.get("replaced"):
            transcript.replace(data["replaced"], data["summary"])
    else:
        transcript.iterations = data["iteration"]
        is_loop = data["purpose"] == "loop"
        own = [call for call in calls if is_loop and call.iteration == transcript.iterations]
        transcript.add_response(data["text"], own)


def _planned(call: StoredToolCall, route: Route) -> StoredToolCall:
    waits = ToolCallState.WAITING_APPROVAL if route.needs_approval else ToolCallState.READY
    return replace(
        call,
        state=waits,
        queue=route.queue,
        is_repeatable=route.is_repeatable,
        timeout_s=route.timeout_s,
        approval=ApprovalState.WAITING if route.needs_approval else None,
    )


def _canonical(arguments: str) -> str:
    """Return arguments so that the same ones are equal, however they were written."""
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    return json.dumps(parsed or {}, sort_keys=True)


def _unique(call_id: str, taken: set[str]) -> str:
    """Return the id, or with a number after it if the model has used it before."""
    candidate, number = call_id, 2
    while candidate in taken:
        candidate, number = f"{call_id}_{number}", number + 1
    taken.add(candidate)
    return candidate
