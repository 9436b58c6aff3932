"""The tool that takes values out of JSON text."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.errors import ToolError

PROCESS = Path(__file__).with_name("json_process.py")
MAX_SECONDS = 10
# Processes at once in one worker.
MAX_PROCESSES = 4
MAX_TEXT_CHARS = 1_000_000


class JsonQuery:
    """Runs each query in a process of its own, a few at once."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_PROCESSES)

    async def run(
        self,
        expression: Annotated[str, Field(min_length=1, max_length=1_000)],
        text: Annotated[str, Field(max_length=MAX_TEXT_CHARS)],
    ) -> str:
        """Take values out of JSON text with a JMESPath expression.

        expression: for example items[?price > `10`].name
        text: the JSON text
        """
        request = json.dumps({"expression": expression, "text": text})
        async with self._free:
            output = await _query(request.encode())
        answer = json.loads(output)
        if "error" in answer:
            raise ToolError(answer["error"])
        return str(answer["result"])


async def _query(request: bytes) -> bytes:
    """Return what the process writes. Raises ToolError if it dies or takes too long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(PROCESS)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(MAX_SECONDS):
            output, _ = await process.communicate(request)
    except TimeoutError:
        output = b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ToolError("The query takes too much time or memory: ask for less")
    return output
