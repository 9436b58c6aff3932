"""Generated messages of a request, for property tests."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from workers.context.calibration import Factors, Sample
from workers.context.hints import Hint
from workers.context.messages import ImagePart, Message, Part, TextPart, ToolCall
from workers.model.values import ModelTarget

TEXTS = st.builds(
    lambda piece, times: piece * times,
    st.sampled_from(["word ", "漢字", "Слово ", '{"a":1}', "\ud800", "🙂"]),
    st.integers(0, 30) | st.integers(0, 3_000),
)
PARTS: SearchStrategy[tuple[Part, ...]] = st.lists(
    st.builds(lambda text: TextPart(text=text), TEXTS)
    | st.just(ImagePart(url="data:image/png;base64,AAAA")),
    max_size=3,
).map(tuple)


def user(text: str, *, pinned: bool = False) -> Message:
    """Return a message of the user."""
    return Message(role="user", content=text, pinned=pinned)


def assistant(text: str) -> Message:
    """Return an answer."""
    return Message(role="assistant", content=text)


def a_round(*results: str, name: str = "c") -> tuple[Message, ...]:
    """Return an assistant message with as many tool calls as there are results, and those."""
    ids = [f"{name}{number}" for number in range(len(results))]
    calls = tuple(ToolCall(id=call_id, name="look", arguments="{}") for call_id in ids)
    return (
        Message(role="assistant", content=None, tool_calls=calls),
        *(
            Message(role="tool", content=result, tool_call_id=call_id)
            for call_id, result in zip(ids, results, strict=True)
        ),
    )


USERS = st.builds(
    lambda content: Message(role="user", content=content, origin="history"), TEXTS | PARTS
)
ASSISTANTS = st.builds(assistant, TEXTS)
ROUNDS = st.lists(TEXTS, min_size=1, max_size=3).map(lambda results: a_round(*results))
INJECTIONS = st.builds(
    lambda text: Message(role="user", content=text, pinned=True, origin="injection"), TEXTS
)
QUERIES = st.builds(
    lambda text: Message(role="user", content=text, pinned=True, origin="query"), TEXTS
)
SYSTEMS = st.builds(lambda text: Message(role="system", content=text, origin="instructions"), TEXTS)


def _unit(messages: SearchStrategy[Message]) -> SearchStrategy[tuple[Message, ...]]:
    return messages.map(lambda message: (message,))


def _join(units: list[tuple[Message, ...]]) -> tuple[Message, ...]:
    """Join units, with call ids that are unique in the whole."""
    return tuple(
        replace(
            message,
            tool_calls=tuple(
                replace(call, id=f"{number}-{call.id}") for call in message.tool_calls
            ),
            tool_call_id=message.tool_call_id and f"{number}-{message.tool_call_id}",
        )
        for number, unit in enumerate(units)
        for message in unit
    )


ANY_MESSAGES = st.lists(_unit(USERS | ASSISTANTS | INJECTIONS | SYSTEMS) | ROUNDS, max_size=12).map(
    _join
)


def stored(*messages: Message) -> tuple[Message, ...]:
    """Return messages as a conversation holds them, with their positions."""
    return tuple(
        replace(message, origin="history", position=position)
        for position, message in enumerate(messages, start=1)
    )


HISTORIES = st.lists(st.tuples(USERS, ASSISTANTS), max_size=8).map(
    lambda pairs: stored(*(message for pair in pairs for message in pair)),
)


REQUESTS = st.builds(
    lambda system, history, query, loop: _join([(system,), history, (query,), *loop]),
    SYSTEMS,
    HISTORIES,
    QUERIES,
    st.lists(ROUNDS | _unit(INJECTIONS), max_size=6),
)


class FixedCalibration:
    """Factors that stay as they are; what is learned is kept to be looked at."""

    def __init__(self, ascii_factor: float = 1.0, other_factor: float = 1.0) -> None:
        self._factors = Factors(ascii_factor, other_factor, ascii_factor)
        self.learned: list[Sample] = []

    def factors(self, _target: ModelTarget) -> Factors:
        """Return the factors."""
        return self._factors

    def learn(self, _target: ModelTarget, sample: Sample) -> None:
        """Keep the sample."""
        self.learned.append(sample)


class ScriptedSummaries:
    """Summaries as a test says; what was to be summarised is kept."""

    def __init__(self, text: str | Exception = "What was said before.") -> None:
        self.text = text
        self.asked: list[list[Message]] = []
        self.hints: list[Hint] = []

    async def summarize(
        self,
        messages: Sequence[Message],
        *,
        hint: Hint,
        room_tokens: int,  # noqa: ARG002 - part of the protocol
    ) -> str:
        """Return the text, or raise it."""
        self.asked.append(list(messages))
        self.hints.append(hint)
        if isinstance(self.text, Exception):
            raise self.text
        return self.text
