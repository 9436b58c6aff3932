"""The scripted model: a real server in a thread, which answers as a test says and records all.

It speaks the protocol of the real API and refuses what that refuses. A test says what is answered
(`when`, `respond_with`, `respond`), holds calls where it wants them (`hold`), and looks at `calls`
afterwards. Everything here may be used from any thread.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import uvicorn

from demo.call import Call, Observer, Outcome, Received
from demo.connection import ClosableProtocol
from demo.protocol import ChatRequest
from demo.refusal import Refusal
from demo.reply import Reply, Usage
from demo.server import Respond, create_app
from tests.helpers.ports import free_port
from tests.helpers.waiting import wait_until

Predicate = Callable[[ChatRequest], bool]

BACKLOG = 2_048
WAIT_S = 10.0
# Refusals that come of how the server was set up, not of a malformed request.
CONFIGURED_CODES = frozenset(
    {"context_length_exceeded", "invalid_api_key", "model_not_found", "unsupported_parameter"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A request that was accepted, as it stood when one looked. Times are monotonic."""

    # Counted from 0, in the order of arrival.
    index: int
    request: ChatRequest
    body: Mapping[str, object]
    raw: bytes
    # Names in lower case.
    headers: Mapping[str, str]
    received_at_s: float
    # None while it runs, as is the outcome.
    ended_at_s: float | None
    outcome: Outcome | None
    # What a finished call reported.
    usage: Usage | None

    @property
    def is_finished(self) -> bool:
        """Whether the whole answer was sent."""
        return self.outcome is Outcome.FINISHED

    @property
    def is_disconnected(self) -> bool:
        """Whether the client went away before the answer was complete."""
        return self.outcome is Outcome.DISCONNECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRefusal:
    """A request that was not accepted."""

    raw: bytes
    headers: Mapping[str, str]
    status: int
    message: str
    code: str | None


def mentions(text: str) -> Predicate:
    """Return a predicate: whether any user message of the request contains the text."""
    return lambda request: any(
        text in message.text for message in request.messages if message.role == "user"
    )


class Hold:
    """Holds matching calls at one point, until released; as a context manager, until its end."""

    def __init__(self, model: "ScriptedModel", predicate: Predicate, after_chunks: int) -> None:
        self.predicate = predicate
        self.after_chunks = after_chunks
        self._model = model
        self._reached = 0
        self._changed = threading.Condition()
        self._released = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def reached(self) -> int:
        """How many calls have come to the point, those that went away again included."""
        with self._changed:
            return self._reached

    def wait_reached(self, timeout_s: float = WAIT_S, *, calls: int = 1) -> None:
        """Wait until so many calls have come to the point. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._reached >= calls, timeout_s):
                raise TimeoutError(
                    f"after {timeout_s:g} s: {self._reached} of {calls} calls have come to the hold"
                )

    def release(self) -> None:
        """Let the held calls go on, and later ones pass."""
        self._model.forget_hold(self)
        self._model.run_in_loop(self._released.set)

    async def pass_through(self) -> None:
        """Come to the point. Called in the server's loop."""
        if self._released.is_set():
            return
        with self._changed:
            self._reached += 1
            self._changed.notify_all()
        await self._released.wait()


class ScriptedModel:
    """The server. Start it with `with ScriptedModel() as model:` or `start` and `stop`.

    models, api_key, context_size, unsupported: as `demo.server.create_app` takes them.
    What answers a call: the first rule of `when` that matches, else the next reply given to
    `respond_with`, else the function `respond`. It is chosen as the call comes in, before any
    hold. The port stays the same over restarts.
    """

    def __init__(
        self,
        *,
        models: tuple[str, ...] = (),
        api_key: str | None = None,
        context_size: int | None = None,
        unsupported: Collection[str] = (),
    ) -> None:
        self.respond: Respond = _say_ok
        self._port = free_port()
        self._recorder = _Recorder(self)
        self._rules: list[tuple[Predicate, deque[Reply | Respond]]] = []
        self._queue: deque[Reply] = deque()
        self._lock = threading.Lock()
        self._app = create_app(
            self._choose,
            models=models,
            api_key=api_key,
            context_size=context_size,
            unsupported=unsupported,
            observer=self._recorder,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """What a client's base URL is set to."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def calls(self) -> list[RecordedCall]:
        """The requests that were accepted, in the order of arrival."""
        return self._recorder.calls()

    @property
    def refusals(self) -> list[RecordedRefusal]:
        """The requests that the real API would refuse; a product's tests want none."""
        refused = self._recorder.refusals()
        return [item for item in refused if item.code not in CONFIGURED_CODES]

    @property
    def configured_refusals(self) -> list[RecordedRefusal]:
        """The requests refused for their length, key or model, as this server was set up to do."""
        refused = self._recorder.refusals()
        return [item for item in refused if item.code in CONFIGURED_CODES]

    @property
    def total_usage(self) -> Usage:
        """The tokens of all finished calls."""
        used = (call.usage for call in self.calls if call.usage is not None)
        return sum(used, start=Usage(prompt_tokens=0, completion_tokens=0))

    def start(self) -> None:
        """Start to serve; returns when requests are answered."""
        listening = socket.create_server(("127.0.0.1", self._port), backlog=BACKLOG)
        config = uvicorn.Config(
            self._app, http=ClosableProtocol, ws="none", lifespan="off", log_config=None
        )
        server = self._server = uvicorn.Server(config)
        self._recorder.begin()
        self._thread = threading.Thread(
            target=self._run, args=(server, listening), name="scripted-model", daemon=True
        )
        self._thread.start()
        wait_until(
            lambda: server.started or not self._is_running,
            message="the scripted model has not started",
        )
        if not server.started:
            raise RuntimeError("the scripted model ended as it started")

    def stop(self) -> None:
        """Break all calls off and stop to serve. Holds end; what was recorded stays."""
        if self._server is None or self._thread is None:
            return
        self.run_in_loop(self._recorder.abort_all)
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"after {WAIT_S:g} s: the scripted model has not stopped")
        self._server = self._thread = self._loop = None

    def when(self, predicate: Predicate, *replies: Reply | Respond) -> None:
        """Answer matching requests with these, one after the other; the last one stays.

        A function in place of a reply is given the request.
        """
        with self._lock:
            self._rules.append((predicate, deque(replies)))

    def respond_with(self, *replies: Reply) -> None:
        """Answer the next requests that no rule matches with these, each once."""
        with self._lock:
            self._queue.extend(replies)

    def hold(self, predicate: Predicate | None = None, *, after_chunks: int = 0) -> Hold:
        """Hold matching calls, or all.

        after_chunks: how many chunks are sent first, the one with the role counted; 0 holds
        before the first byte.
        """
        hold = Hold(self, predicate or _match_all, after_chunks)
        self._recorder.add_hold(hold)
        return hold

    def forget_hold(self, hold: Hold) -> None:
        """Have no more calls held by this one."""
        self._recorder.remove_hold(hold)

    def release_stalls(self) -> None:
        """Let stalled answers go on, those to come too."""
        self.run_in_loop(self._recorder.release_stalls)

    def wait_for_calls(self, count: int, timeout_s: float = WAIT_S) -> list[RecordedCall]:
        """Wait until so many requests were accepted, and return all. Raises TimeoutError."""
        self._recorder.wait_for(count, timeout_s)
        return self.calls

    def run_in_loop(self, action: Callable[[], object]) -> None:
        """Do something in the server's loop; at once if the server does not run."""
        if self._loop is None:
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, server: uvicorn.Server, listening: socket.socket) -> None:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            runner.run(server.serve([listening]))

    def _choose(self, request: ChatRequest) -> Reply | Awaitable[Reply]:
        chosen = self._next_reply(request)
        return chosen if isinstance(chosen, Reply) else chosen(request)

    def _next_reply(self, request: ChatRequest) -> Reply | Respond:
        with self._lock:
            for predicate, replies in self._rules:
                if predicate(request):
                    return replies.popleft() if len(replies) > 1 else replies[0]
            return self._queue.popleft() if self._queue else self.respond


class _Recorder(Observer):
    """Writes down what the server sees, and keeps calls at the holds."""

    def __init__(self, model: ScriptedModel) -> None:
        self.is_stopping = False
        self.stalls_released = asyncio.Event()
        self._model = model
        self._calls: list[Call] = []
        self._running: set[Call] = set()
        self._refusals: list[RecordedRefusal] = []
        self._holds: tuple[Hold, ...] = ()
        self._changed = threading.Condition()

    def begin(self) -> None:
        """Get ready for an event loop."""
        self.is_stopping = False
        self.stalls_released = asyncio.Event()

    def refused(self, received: Received, refusal: Refusal) -> None:
        recorded = RecordedRefusal(
            raw=received.raw,
            headers=received.headers,
            status=refusal.status,
            message=refusal.message,
            code=refusal.code,
        )
        with self._changed:
            self._refusals.append(recorded)

    def begun(self, call: Call) -> None:
        self._running.add(call)
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()
        if self.is_stopping:
            call.abort()

    async def before_chunk(self, call: Call, sent: int) -> None:
        for hold in self._holds:
            if hold.after_chunks == sent and hold.predicate(call.request):
                await hold.pass_through()

    async def stalled(self, call: Call) -> None:
        del call
        await self.stalls_released.wait()

    def release_stalls(self) -> None:
        self.stalls_released.set()

    def ended(self, call: Call) -> None:
        self._running.discard(call)

    def abort_all(self) -> None:
        self.is_stopping = True
        self._holds = ()
        for call in list(self._running):
            call.abort()

    def add_hold(self, hold: Hold) -> None:
        with self._changed:
            self._holds += (hold,)

    def remove_hold(self, hold: Hold) -> None:
        with self._changed:
            self._holds = tuple(item for item in self._holds if item is not hold)

    def calls(self) -> list[RecordedCall]:
        with self._changed:
            calls = list(self._calls)
        return [_record(index, call) for index, call in enumerate(calls)]

    def refusals(self) -> list[RecordedRefusal]:
        with self._changed:
            return list(self._refusals)

    def wait_for(self, count: int, timeout_s: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._calls) >= count, timeout_s):
                raise TimeoutError(
                    f"after {timeout_s:g} s: {len(self._calls)} of {count} calls have come"
                )


def _record(index: int, call: Call) -> RecordedCall:
    outcome = call.outcome
    return RecordedCall(
        index=index,
        request=call.request,
        body=call.request.body,
        raw=call.received.raw,
        headers=call.received.headers,
        received_at_s=call.received.received_at_s,
        ended_at_s=None if outcome is None else call.ended_at_s,
        outcome=outcome,
        usage=None if outcome is None else call.usage,
    )


def _match_all(request: ChatRequest) -> bool:
    del request
    return True


def _say_ok(request: ChatRequest) -> Reply:
    del request
    return Reply(text="ok")
