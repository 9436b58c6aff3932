"""The tools a worker knows, by name, and the hooks around them."""

from collections.abc import Iterable, Iterator, Sequence

from shared.errors import ConfigurationError, InvalidInputError
from workers.model.values import ToolSchema
from workers.tools.hooks import ToolHook
from workers.tools.tool import Tool


class ToolRegistry:
    """Tools in a fixed order: that of the schemas in every request, for the prompt cache.

    hooks: run around each call, in order.
    absent: prefixes of tools that there are at other times, since their server is away now.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        hooks: Sequence[ToolHook] = (),
        absent: Sequence[str] = (),
    ) -> None:
        """Raise ConfigurationError if two tools have one name."""
        self.hooks = tuple(hooks)
        self._absent = tuple(absent)
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ConfigurationError(f"There are two tools named {tool.name}")
            self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._tools)

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, if there is one."""
        return self._tools.get(name)

    def schemas(self) -> tuple[ToolSchema, ...]:
        """Return the tools as a model is told of them, in order."""
        return tuple(tool.schema() for tool in self)

    def subset(self, names: Iterable[str]) -> "ToolRegistry":
        """Return a registry of these tools only, in this registry's order, with its hooks.

        Absent tools are left out. Raises InvalidInputError if one is unknown.
        """
        wanted = {name for name in names if name in self._tools or not self._is_absent(name)}
        unknown = sorted(wanted.difference(self._tools))
        if unknown:
            raise InvalidInputError(
                f"Unknown tools: {', '.join(unknown)}. There are: {', '.join(self.names)}",
            )
        return ToolRegistry((tool for tool in self if tool.name in wanted), self.hooks)

    def _is_absent(self, name: str) -> bool:
        return name.startswith(self._absent)
