import pytest

from shared.errors import ToolError
from workers.tools.json_query import JsonQuery

ITEMS = '{"items": [{"name": "tea", "price": 12}, {"name": "Süßes", "price": 3}]}'


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("items[?price > `10`].name", '["tea"]'),
        ("items[1].name", '"Süßes"'),
        ("nothing", "null"),
        ("length(items)", "2"),
    ],
)
async def test_query(expression: str, result: str) -> None:
    assert await JsonQuery().run(expression, ITEMS) == result


@pytest.mark.parametrize(
    ("expression", "text", "sentence"),
    [
        ("items", "{", "The text is no JSON"),
        ("items[", ITEMS, "The expression is wrong"),
        ("abs(items)", ITEMS, "The expression is wrong"),
    ],
)
async def test_what_is_wrong_is_said(expression: str, text: str, sentence: str) -> None:
    with pytest.raises(ToolError, match=sentence):
        await JsonQuery().run(expression, text)


@pytest.mark.parametrize(
    "expression",
    [
        # Twice as much at each bar.
        "|".join(["[@, @][]"] * 100),
        "|".join(["[to_string(@), to_string(@)]"] * 30),
        "|".join(["[@, @]"] * 100),
    ],
)
async def test_query_without_measure_is_stopped(expression: str) -> None:
    with pytest.raises(ToolError, match="too much time or memory"):
        await JsonQuery().run(expression, '["text"]')


async def test_deep_nesting_is_no_crash() -> None:
    with pytest.raises(ToolError):
        await JsonQuery().run("@", "[" * 100_000)
