"""Tool calls put together from the pieces of a stream.

Providers differ: most number the calls by `index`, some use index 0 for all or none at all, some
repeat name and id with every piece, some send a new id with every piece, some send no id.
"""

from dataclasses import dataclass, field

import orjson

from shared.errors import ModelStreamError
from workers.context.messages import ToolCall
from workers.model.json_values import as_object, as_text
from workers.model.surrogates import join_surrogates


@dataclass(slots=True)
class _Call:
    index: object
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a whole JSON value."""
        try:
            orjson.loads("".join(self.arguments))
        except orjson.JSONDecodeError:
            return False
        return True


class ToolCallAssembly:
    """The tool calls of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, piece: dict[str, object]) -> None:
        """Add a piece: an element of `tool_calls` in a delta."""
        function = as_object(piece.get("function"))
        name = as_text(function.get("name"))
        index = piece.get("index")
        call_id = as_text(piece.get("id"))
        call = self._find(index, call_id, name)
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        if arguments := function.get("arguments"):
            call.arguments.append(_as_json(arguments))

    def finish(self) -> tuple[ToolCall, ...]:
        """Return the calls. Raises ModelStreamError if one has no name."""
        if not all(call.name for call in self._calls):
            raise ModelStreamError("The model's answer holds a tool call without a name")
        taken = {call.id for call in self._calls}
        calls = [call for call in self._calls if not self._is_echo(call)]
        return tuple(
            ToolCall(
                id=call.id or _made_up_id(number, taken),
                name=call.name,
                arguments=join_surrogates("".join(call.arguments)) or "{}",
            )
            for number, call in enumerate(calls, start=1)
        )

    def _is_echo(self, call: _Call) -> bool:
        """Tell a name and id that some servers repeat at the end of a call from a call."""
        others = (it for it in self._calls if it is not call and it.id == call.id)
        return bool(call.id) and not call.arguments and any(others)

    def _find(self, index: object, call_id: str, name: str) -> _Call | None:
        """Return the call that a piece goes on with; None if it begins a new one."""
        calls = [call for call in self._calls if index is None or call.index == index]
        if not calls:
            return None
        known = [call for call in calls if call_id and call.id == call_id]
        if known:
            # Named once more after it was whole: another one with the same id.
            return None if name and known[-1].is_complete else known[-1]
        last = calls[-1]
        return None if _begins_call(last, call_id, name) else last


def _begins_call(last: _Call, call_id: str, name: str) -> bool:
    # A piece without a name goes on, whatever its id: some servers make up an id per piece.
    if not name or not last.name:
        return False
    if call_id and last.id:
        return True
    return name != last.name or last.is_complete


def _made_up_id(number: int, taken: set[str]) -> str:
    """Return an id that is the same whenever the same answer is read."""
    call_id = f"call_{number}"
    while call_id in taken:
        call_id += "_"
    return call_id


def _as_json(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
