"""Starting children in groups, waiting until they are ready, stopping them in order."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cli.child import Child, ChildFailedError, ChildSpec
from cli.terminal import Terminal

READY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    child: Child
    life: asyncio.Task[None]


class Supervisor:
    """The children of one `turnmill up`."""

    def __init__(self, terminal: Terminal, *, ready_timeout_s: float = READY_TIMEOUT_S) -> None:
        self._terminal = terminal
        self._ready_timeout_s = ready_timeout_s
        self._groups: list[list[_Kept]] = []

    def start(self, specs: Iterable[ChildSpec]) -> list[Child]:
        """Start a group of children; they are stopped together. Does not wait."""
        group = [self._keep(spec) for spec in specs]
        self._groups.append(group)
        return [kept.child for kept in group]

    async def wait_ready(self) -> None:
        """Wait until every child is ready.

        Raises ChildFailedError if one cannot be started, or is not ready in time.
        """
        await asyncio.gather(*(self._wait_ready(kept) for kept in self._all()))

    async def watch(self) -> None:
        """Keep the children alive until cancelled. Raises what makes that impossible."""
        lives = {kept.life for kept in self._all()}
        done, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_EXCEPTION)
        for life in done:
            life.result()

    async def stop(self) -> None:
        """Stop the groups one after the other, the last one started first."""
        for group in reversed(self._groups):
            await asyncio.gather(*(self._stop(kept) for kept in group))

    def kill(self) -> None:
        """End all processes at once. `stop` returns soon then."""
        for kept in self._all():
            kept.child.kill()

    def _keep(self, spec: ChildSpec) -> _Kept:
        child = Child(spec, self._terminal)
        return _Kept(child=child, life=asyncio.create_task(child.keep_alive(), name=spec.name))

    def _all(self) -> Sequence[_Kept]:
        return [kept for group in self._groups for kept in group]

    async def _wait_ready(self, kept: _Kept) -> None:
        ready = asyncio.create_task(kept.child.is_ready.wait())
        try:
            done, _ = await asyncio.wait(
                {ready, kept.life},
                timeout=self._ready_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            ready.cancel()
        if kept.life in done:
            kept.life.result()
        if not done:
            kept.child.show_tail()
            raise ChildFailedError(
                f"{kept.child.spec.name} runs, but is not ready after {self._ready_timeout_s:g} s",
            )

    async def _stop(self, kept: _Kept) -> None:
        kept.child.stop()
        timeout_s = kept.child.spec.stop_timeout_s
        done, _ = await asyncio.wait({kept.life}, timeout=timeout_s)
        if not done:
            name = kept.child.spec.name
            self._terminal.say(f"{name} has not ended after {timeout_s:g} s and is killed")
            kept.child.kill()
            await asyncio.wait({kept.life})
        if not kept.life.cancelled():
            # Seen already if it is a ChildFailedError: it ended the start.
            kept.life.exception()
