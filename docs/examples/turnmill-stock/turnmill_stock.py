"""Two tools that share a stock: one looks, the other takes."""

from typing import Annotated

from pydantic import Field

from shared.errors import ToolError
from workers.tools.tool import ToolContext, tool


class Stock:
    """What is in stock. A real one would ask a database, with an async client."""

    def __init__(self, pieces: dict[str, int]) -> None:
        self.pieces = dict(pieces)
        # Reservations by idempotency key.
        self.reserved: dict[str, str] = {}

    def count(self, item: str) -> int:
        """Return how many there are. Raises ToolError, whose sentence the model reads."""
        if item not in self.pieces:
            raise ToolError(f"There is no {item}. Items: {', '.join(self.pieces)}")
        return self.pieces[item]


STOCK = Stock({"tea": 12, "coffee": 0})


@tool(is_repeatable=True)
async def stock_level(item: str) -> int:
    """Tell how many pieces of an item are in stock.

    item: its name, in lower case
    """
    return STOCK.count(item)


class ReserveStock:
    """A class with a method `run` is a tool, too."""

    async def run(
        self,
        item: str,
        context: ToolContext,
        pieces: Annotated[int, Field(ge=1, le=100)] = 1,
    ) -> str:
        """Reserve pieces of an item for the user.

        item: its name, in lower case
        pieces: how many
        """
        # Repeatable because of this: a call that is run again has the same id.
        if context.tool_call_id not in STOCK.reserved:
            if STOCK.count(item) < pieces:
                raise ToolError(f"Only {STOCK.count(item)} pieces of {item} are left")
            STOCK.pieces[item] -= pieces
            STOCK.reserved[context.tool_call_id] = item
        return f"Reserved {pieces} pieces of {item}"


TOOLS = [stock_level, tool(is_repeatable=True)(ReserveStock)]
