"""Work that a few characters can make endless, each time in a process of its own with limits.

A thread could not be stopped and would hold up every turn of the worker.
"""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE

from shared.errors import ToolError

# Beyond the limits that the process sets itself: it may have to wait for a processor.
MAX_SECONDS = 10
# Processes at once, of each kind.
MAX_PROCESSES = 4


class LimitedProcess:
    """Runs a module whose main program is `workers.tools.limits.serve`."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._free = asyncio.Semaphore(MAX_PROCESSES)

    async def ask(self, **request: str) -> str:
        """Return the answer. Raises ToolError if there is none, or none within the limits."""
        async with self._free:
            output = await self._run(json.dumps(request).encode())
        answer: dict[str, str] = json.loads(output)
        if "error" in answer:
            raise ToolError(answer["error"])
        return answer["result"]

    async def _run(self, request: bytes) -> bytes:
        # -P: without it, `-m` looks into the current directory first.
        command = (sys.executable, "-P", "-m", self._module)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        output = b""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_SECONDS):
                    output, _ = await process.communicate(request)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            raise ToolError("This takes too much time or memory: ask for less")
        return output
