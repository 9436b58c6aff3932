import dataclasses
from typing import Annotated, Literal

import pytest
from pydantic import Field

from shared.errors import ConfigurationError, ToolError
from workers.tools.tool import ToolContext, tool


@tool()
async def order(item: str, count: int = 1, *, size: Literal["s", "l"] = "s") -> str:
    """Order something.

    It is delivered at once.

    item: what to order,
      by its name.
    count: how many.
    """
    return f"{count} {item} {size}"


def test_schema_is_made_from_signature_and_docstring() -> None:
    schema = order.schema()
    assert schema.name == "order"
    assert schema.description == "Order something.\n\nIt is delivered at once."
    assert schema.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "item": {"type": "string", "description": "what to order, by its name."},
            "count": {"type": "integer", "description": "how many.", "default": 1},
            "size": {"type": "string", "enum": ["s", "l"], "default": "s"},
        },
        "required": ["item"],
    }


def test_description_of_an_annotated_type_is_kept() -> None:
    @tool()
    def look(place: Annotated[str, Field(description="where", max_length=3)] = "all") -> None:
        """Look."""

    assert look.parameters["properties"] == {
        "place": {"type": "string", "description": "where", "maxLength": 3, "default": "all"},
    }
    with pytest.raises(ToolError, match="place: String should have at most 3 characters"):
        look.parse_arguments('{"place": "here"}')


def test_tool_without_parameters_takes_an_empty_object() -> None:
    @tool(is_repeatable=True, timeout_s=5)
    def ping() -> None:
        """Ping."""

    assert ping.parameters == {"type": "object", "additionalProperties": False, "properties": {}}
    assert (ping.is_repeatable, ping.timeout_s) == (True, 5)
    assert (order.is_repeatable, order.timeout_s) == (False, None)


@pytest.mark.parametrize("arguments", ["", " ", "null", "{}"])
def test_no_arguments_mean_the_defaults(arguments: str) -> None:
    @tool()
    def ping(count: int = 3) -> None:
        """Ping."""

    assert ping.parse_arguments(arguments) == {"count": 3}


def test_arguments_are_converted() -> None:
    assert order.parse_arguments('{"item": "tea", "count": "2"}') == {
        "item": "tea",
        "count": 2,
        "size": "s",
    }


def test_all_that_is_wrong_is_listed() -> None:
    with pytest.raises(ToolError) as caught:
        order.parse_arguments('{"count": "many", "colour": "red"}')
    sentence = caught.value.message
    assert sentence.startswith("The arguments of order are wrong. ")
    assert "item: Field required" in sentence
    assert "count: Input should be a valid integer" in sentence
    assert "colour: there is no such argument" in sentence


@pytest.mark.parametrize("arguments", ["{", "[]", '"text"', "{'item': 1}", '{"item": "\\ud800"}'])
def test_what_is_no_json_object_is_refused(arguments: str) -> None:
    with pytest.raises(ToolError, match="The arguments of order are wrong"):
        order.parse_arguments(arguments)


def test_context_is_no_argument() -> None:
    @tool()
    def whoami(context: ToolContext, name: str) -> None:
        """Tell."""

    assert whoami.context_parameter == "context"
    assert list(whoami.arguments.model_json_schema()["properties"]) == ["name"]
    with pytest.raises(ToolError, match="context: there is no such argument"):
        whoami.parse_arguments('{"name": "a", "context": {}}')


def test_parameter_may_be_called_as_a_method_of_the_model() -> None:
    @tool()
    def convert(schema: str, json: str, _private: int = 0, model_dump: int = 1) -> None:
        """Convert."""

    assert convert.parse_arguments('{"schema": "a", "json": "b"}') == {
        "schema": "a",
        "json": "b",
        "_private": 0,
        "model_dump": 1,
    }


def test_nested_types_are_described_and_parsed() -> None:
    @dataclasses.dataclass
    class Point:
        title: str
        x: int

    @tool()
    def draw(points: list[Point]) -> None:
        """Draw."""

    arguments = draw.parse_arguments('{"points": [{"title": "a", "x": 1}]}')
    assert arguments == {"points": [Point("a", 1)]}
    with pytest.raises(ToolError, match=r"points\.0\.x: Field required"):
        draw.parse_arguments('{"points": [{"title": "a"}]}')
    definitions = draw.parameters["$defs"]
    assert isinstance(definitions, dict)
    assert set(definitions["Point"]["properties"]) == {"title", "x"}


def test_signature_that_cannot_be_described_is_refused() -> None:
    def rest(*values: int) -> None:
        """Take."""

    def untyped(value) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """Take."""

    def strange(value: dataclasses.Field[int]) -> None:
        """Take."""

    def silent(value: int) -> None:
        pass

    for function, sentence in (
        (rest, "cannot be an argument"),
        (untyped, "value needs a type"),
        (strange, "strange"),
        (silent, "needs a docstring"),
        (lambda: None, "cannot be a tool's name"),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            tool()(function)


class OrderStatus:
    """Look up where an order is.

    order_id: the number on the receipt
    """

    def __init__(self, answer: str = "on its way") -> None:
        self.answer = answer

    async def run(self, order_id: str, context: ToolContext) -> str:
        return f"{order_id}: {self.answer} ({context.turn_id})"


@pytest.mark.parametrize("target", [OrderStatus, OrderStatus()])
def test_class_and_object_with_a_method_run_are_tools(target: type[OrderStatus]) -> None:
    made = tool(is_repeatable=True, queue="tools", needs_approval=True)(target)

    assert (made.name, made.description) == ("order_status", "Look up where an order is.")
    assert made.parameters["properties"] == {
        "order_id": {"type": "string", "description": "the number on the receipt"},
    }
    assert (made.context_parameter, made.parse_arguments('{"order_id": "7"}')) == (
        "context",
        {"order_id": "7"},
    )
    assert (made.is_repeatable, made.queue, made.needs_approval) == (True, "tools", True)
    assert (order.queue, order.needs_approval) == (None, False)


def test_one_class_makes_several_tools() -> None:
    near, far = (tool(name=f"status_{answer}")(OrderStatus(answer)) for answer in ("near", "far"))

    assert (near.name, far.name) == ("status_near", "status_far")
    assert near.function != far.function


def test_docstring_of_the_method_comes_first() -> None:
    class HTTPLook:
        """Internals."""

        def run(self) -> None:
            """Look."""

    made = tool()(HTTPLook)
    assert (made.name, made.description) == ("http_look", "Look.")


def test_what_cannot_be_a_tool_is_refused() -> None:
    class Needy:
        """Take."""

        def __init__(self, url: str) -> None:
            self.url = url

        def run(self) -> None:
            pass

    class Idle:
        """Do nothing."""

    for target, sentence in ((Needy, "decorate an object"), (Idle, "needs a method `run`")):
        with pytest.raises(ConfigurationError, match=sentence):
            tool()(target)
    with pytest.raises(ConfigurationError, match="no queue 'turns'"):
        tool(queue="turns")  # type: ignore[arg-type]
