"""Notes to the model that keep a loop on its way: look back, stop repeating, check before the end.

Whether one is due follows from the transcript alone, so another attempt finds the same ones due.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from shared.settings import Settings
from workers.react.transcript import Note, Transcript

MARK = "[Automatic note, not from the user:]"

REFLECTION = """\
{calls} tool calls have been made. Look back before you go on: the request is
"{query}"
What is known by now, what is still missing, and does the next call bring it? If there is enough to
answer, answer."""

CYCLE = """\
{tool} was called {times} times with the same arguments, and it gives the same result each time.
Do not repeat that call: use other arguments or another tool, or answer from what you have."""

CHECKLIST = """\
Before this answer is given, check it against the request:
"{query}"
Is every part of the request answered, does each statement rest on a tool's result, and is nothing
left that you said you would do? If something is missing, go on with it now. Otherwise give your
answer again."""

REFORMAT = """\
That was not one JSON object in one of the two forms. Give the same answer again as
{"type": "final_answer", "answer": "..."}
or call a tool with {"type": "tool_call", "tool_name": "...", "tool_args": {}}, and write nothing
else."""

# Most characters of the request that a note repeats.
QUERY_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """When a loop is reminded, and when it ends. 0 turns a note off."""

    # Model calls with tools.
    max_iterations: int
    # Tool calls between two looks back.
    reflection_interval: int
    # Identical calls (arguments in any order) before a warning.
    cycle_threshold: int
    # Tool calls after which the first answer is checked.
    check_min_tools: int

    @classmethod
    def of(cls, settings: Settings) -> "LoopLimits":
        """Return the limits that the settings give."""
        return cls(
            max_iterations=settings.react_max_iterations,
            reflection_interval=settings.react_self_reflection_interval,
            cycle_threshold=settings.react_cycle_detection_threshold,
            check_min_tools=settings.react_completion_check_min_tools,
        )

    def has_one_left(self, transcript: Transcript) -> bool:
        """Whether the next iteration would be the last one, which is for the answer."""
        return transcript.iterations + 1 >= self.max_iterations


def due_notes(transcript: Transcript, limits: LoopLimits, query: str) -> Iterator[Note]:
    """Yield what the model has to be told before its next call."""
    if transcript.messages and transcript.messages[-1].role != "tool":
        return
    calls = len(transcript.fingerprints)
    if limits.reflection_interval and not limits.has_one_left(transcript):
        looks = calls // limits.reflection_interval
        if looks > transcript.noted["reflection"]:
            text = REFLECTION.format(calls=calls, query=query[:QUERY_CHARS])
            yield Note(kind="reflection", text=_marked(text), count=looks)
    if limits.cycle_threshold:
        yield from _cycle(transcript, limits.cycle_threshold)


def checklist(transcript: Transcript, limits: LoopLimits, query: str) -> Note | None:
    """Return the check that comes before a first answer, if that is called for."""
    is_due = (
        0 < limits.check_min_tools <= len(transcript.fingerprints)
        and not transcript.noted["checklist"]
        and transcript.iterations < limits.max_iterations
    )
    if not is_due:
        return None
    text = CHECKLIST.format(query=query[:QUERY_CHARS])
    return Note(kind="checklist", text=_marked(text), count=1)


def reformat(transcript: Transcript, limits: LoopLimits) -> Note | None:
    """Return the request for the right form; None if it was just made, or nothing may follow."""
    if transcript.awaits_reformat or transcript.iterations >= limits.max_iterations:
        return None
    return Note(kind="reformat", text=_marked(REFORMAT), count=transcript.noted["reformat"] + 1)


def _cycle(transcript: Transcript, threshold: int) -> Iterator[Note]:
    times = Counter(transcript.fingerprints)
    warnings = sum(count // threshold for count in times.values())
    if warnings <= transcript.noted["cycle"]:
        return
    # The newest of those that are called too often.
    name, key = next(call for call in reversed(transcript.fingerprints) if times[call] >= threshold)
    text = CYCLE.format(tool=name, times=times[name, key])
    yield Note(kind="cycle", text=_marked(text), count=warnings)


def _marked(text: str) -> str:
    return f"{MARK}\n{text}"
