import pytest

from shared.errors import ConfigurationError, InvalidInputError
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool, tool


def make_tool(name: str) -> Tool:
    def function() -> None:
        """Do it."""

    function.__name__ = name
    return tool()(function)


REGISTRY = ToolRegistry([make_tool("c"), make_tool("a"), make_tool("b")])


def test_order_is_that_of_registration() -> None:
    assert REGISTRY.names == ("c", "a", "b")
    assert [found.name for found in REGISTRY] == ["c", "a", "b"]
    assert [schema.name for schema in REGISTRY.schemas()] == ["c", "a", "b"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two tools named a"):
        ToolRegistry([make_tool("a"), make_tool("a")])


def test_find() -> None:
    found = REGISTRY.find("a")
    assert found is not None
    assert found.name == "a"
    assert REGISTRY.find("x") is None


def test_subset_keeps_the_registrys_order() -> None:
    assert REGISTRY.subset(["b", "c", "b"]).names == ("c", "b")
    assert REGISTRY.subset([]).schemas() == ()


def test_subset_of_unknown_tools_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown tools: x, y\. There are: c, a, b"):
        REGISTRY.subset(["y", "a", "x"])
