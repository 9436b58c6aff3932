"""Forms filled in so that their schemas let them pass."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from demo.forms import fill


class Part(BaseModel):
    """Inside another."""

    kind: Literal["small", "large"]
    note: str | None = None


class Whole(BaseModel):
    """Of all kinds of fields."""

    name: str
    count: Annotated[int, Field(ge=2)]
    share: float
    is_done: bool
    part: Part
    parts: Annotated[list[Part], Field(min_length=2)]
    choice: int | str
    nothing: None
    size: int = 5


def test_filled_form_is_valid() -> None:
    filled = Whole.model_validate(fill(Whole.model_json_schema()))
    assert filled.count == 2
    assert [part.kind for part in filled.parts] == ["small", "small"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [({}, {}), ({"default": 3}, 3), ({"const": "x"}, "x"), ({"type": "array", "items": {}}, [])],
)
def test_small_forms(schema: dict[str, object], value: object) -> None:
    assert fill(schema) == value
