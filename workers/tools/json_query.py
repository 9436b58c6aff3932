"""The tool that takes values out of JSON text."""

from typing import Annotated

from pydantic import Field

from workers.tools.limited_process import LimitedProcess

MAX_TEXT_CHARS = 1_000_000


class JsonQuery:
    """Runs each query in a process of its own."""

    def __init__(self) -> None:
        self._process = LimitedProcess("workers.tools.json_search")

    async def run(
        self,
        expression: Annotated[str, Field(min_length=1, max_length=1_000)],
        text: Annotated[str, Field(max_length=MAX_TEXT_CHARS)],
    ) -> str:
        """Take values out of JSON text with a JMESPath expression.

        expression: for example items[?price > `10`].name
        text: the JSON text
        """
        return await self._process.ask(expression=expression, text=text)
