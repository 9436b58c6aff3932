"""The tools that a turn's model is offered: all, or a selection that only grows.

With many tools, most of a request would be their schemas. So the model picks those it may need
before the loop, and the tool `request_tools` loads others later.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from shared.errors import ModelError
from workers.context.messages import Message
from workers.model.structured import Call, Form, structured_llm_call
from workers.model.values import ModelRequest, ModelTarget, ToolSchema
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool, tool

MAX_PICKED = 6
# Characters of a tool's line in the catalog.
LINE_CHARS = 80
# Characters of the user's message that are shown to whoever picks.
QUERY_CHARS = 4_000

INSTRUCTIONS = f"""\
An assistant is about to work on a user's request. It can be given at most {MAX_PICKED} of the tools
below. Pick those that it most probably needs for the request, by name, the most useful one first.
Pick none that it does not need."""

LOADABLE = "You have some of these tools; `{loader}` loads any other:"

# Has tools added to those of the conversation.
Remember = Callable[[Sequence[str]], Awaitable[None]]


class Picked(BaseModel):
    """The tools to give to the assistant."""

    names: list[str] = Field(description="names of tools, the most useful one first")


PICK = Form(name="pick_tools", description="Pick the tools for a request.", model=Picked)


@tool(is_repeatable=True)
async def request_tools(names: list[str]) -> str:
    """Load further tools. They can be called from your next step on.

    names: of tools in the list of those that can be loaded
    """
    raise NotImplementedError(f"{names} are loaded by OfferedTools")


class OfferedTools:
    """What one turn offers.

    all_tools: what there is to choose from.
    remember: called with what is loaded later.
    """

    def __init__(self, all_tools: ToolRegistry, remember: Remember) -> None:
        self._all = all_tools
        self._remember = remember
        # Names in the order in which they came; None: all.
        self._selected: tuple[str, ...] | None = None
        self.registry = all_tools
        self.schemas: tuple[ToolSchema, ...] = all_tools.schemas()

    def select(self, names: Iterable[str]) -> None:
        """Offer these only, in this order. Unknown names are left out; if none is left, all are."""
        known = tuple(name for name in dict.fromkeys(names) if self._all.find(name))
        if known and len(known) < len(self._all.names):
            self._offer(known)

    def add(self, names: Iterable[str]) -> None:
        """Offer these as well, after the others. Unknown names are left out."""
        if self._selected is not None:
            known = (name for name in names if self._all.find(name))
            self._offer(tuple(dict.fromkeys([*self._selected, *known])))

    async def load(self, names: list[str]) -> str:
        """Do what `request_tools` says; return what the model is told."""
        selected = self._selected or ()
        new = [name for name in dict.fromkeys(names) if name not in selected]
        found = [name for name in new if self._all.find(name)]
        if found:
            await self._remember(found)
            self.add(found)
        already = [name for name in names if name in selected or name == request_tools.name]
        missing = [name for name in new if name not in found and name != request_tools.name]
        said = {"Loaded": found, "Already loaded": already, "Not found": missing}
        lines = [f"{word}: {', '.join(listed)}." for word, listed in said.items() if listed]
        return "\n".join(lines) or "No names were given."

    @property
    def catalog(self) -> str:
        """The list of all tools, for the instructions; "" if all are offered.

        The same text whatever is loaded: prompt caches compare from the start.
        """
        if self._selected is None:
            return ""
        return f"{LOADABLE.format(loader=request_tools.name)}\n{describe(self._all)}"

    def _offer(self, names: tuple[str, ...]) -> None:
        self._selected = names
        loader = replace(request_tools, function=self.load)
        chosen = [item for name in names if (item := self._all.find(name))]
        self.registry = ToolRegistry([loader, *chosen], self._all.hooks)
        self.schemas = self.registry.schemas()


def are_too_many(tools: ToolRegistry, threshold: int) -> bool:
    """Whether some are to be picked. threshold: most tools that are offered as they are; 0: any."""
    return 0 < threshold < len(tools.names)


def describe(tools: Iterable[Tool]) -> str:
    """Return one line per tool, with its name and the beginning of its description."""
    return "\n".join(_line(item) for item in tools)


def _line(item: Tool) -> str:
    text = f"- {item.name}: {' '.join(item.description.split())}"
    return text if len(text) <= LINE_CHARS else f"{text[: LINE_CHARS - 3]}..."


async def pick_tools(
    call: Call,
    target: ModelTarget,
    tools: ToolRegistry,
    query: str,
) -> tuple[str, ...]:
    """Return the names of the tools a model picks for a request, MAX_PICKED at most.

    Empty if it picked none that exists, or could not be asked.
    """
    question = f"{INSTRUCTIONS}\n\n{describe(tools)}"
    request = ModelRequest(
        target=target,
        messages=(
            Message(role="system", content=question, origin="instructions"),
            Message(role="user", content=query[:QUERY_CHARS], pinned=True, origin="query"),
        ),
        purpose="selection",
    )
    try:
        picked = await structured_llm_call(call, request, PICK, default=Picked(names=[]))
    except ModelError:
        return ()
    known = [name for name in dict.fromkeys(picked.value.names) if tools.find(name)]
    return tuple(known[:MAX_PICKED])
