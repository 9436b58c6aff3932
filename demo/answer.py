"""Writing one answer to its connection, with the faults that its reply asks for."""

import asyncio
from collections.abc import Callable

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from demo.call import Call, Observer, Outcome
from demo.connection import connection_closer
from demo.encoding import CORRUPT, count_reply, encode_reply
from demo.refusal import Refusal
from demo.reply import Fault, FaultKind, Reply, Usage
from demo.token_count import count_request

OK = 200


class Answer:
    """The answer to one call."""

    def __init__(
        self, call: Call, observer: Observer, *, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._call = call
        self._observer = observer
        self._scope = scope
        self._receive = receive
        self._send = send
        self._close: Callable[[], None] = connection_closer(scope)

    def close(self) -> None:
        """Close the connection, so that the client sees the answer broken off."""
        self._close()

    def end(self, outcome: Outcome, usage: Usage | None = None) -> None:
        """Note how the call ended, unless that is known already."""
        if self._call.outcome is None:
            self._call.end(outcome, usage)
            self._observer.ended(self._call)

    async def write(self, reply: Reply) -> None:
        """Write the answer as the reply says, and note how it ended."""
        await self._observer.before_chunk(self._call, 0)
        await asyncio.sleep(reply.first_byte_s)
        fault = reply.fault
        if fault and fault.kind is FaultKind.HTTP_STATUS:
            self.end(Outcome.FAULT)
            await _error_response(fault)(self._scope, self._receive, self._send)
        elif fault and fault.kind is FaultKind.DISCONNECT:
            self.end(Outcome.FAULT)
            self.close()
        else:
            await self._write_body(reply)

    async def _write_body(self, reply: Reply) -> None:
        usage = reply.usage or self._count(reply)
        encoded = encode_reply(self._call.request, reply, usage)
        await self._start(encoded.content_type)
        chunks = encoded.chunks
        fault_at = min(reply.fault.after_chunks, len(chunks)) if reply.fault else None
        for sent in range(len(chunks) + 1):
            if sent:
                await self._observer.before_chunk(self._call, sent)
            if reply.fault and sent == fault_at and await self._fail(reply.fault.kind):
                return
            if sent < len(chunks):
                await self._write(chunks[sent])
                await asyncio.sleep(reply.between_chunks_s)
        self.end(Outcome.FINISHED, usage)
        await self._write(encoded.end, is_last=True)

    async def _start(self, content_type: str) -> None:
        await self._send(
            {
                "type": "http.response.start",
                "status": OK,
                "headers": [(b"content-type", content_type.encode())],
            },
        )

    async def _fail(self, kind: FaultKind) -> bool:
        """Do what the fault says; True if the answer ends by it."""
        if kind is FaultKind.STALL:
            await self._observer.stalled(self._call)
            return False
        if kind is FaultKind.CORRUPT_CHUNK:
            await self._write(CORRUPT)
            return False
        self.end(Outcome.FAULT)
        if kind is FaultKind.CUT:
            self.close()
        else:
            await self._write(b"", is_last=True)
        return True

    async def _write(self, body: bytes, *, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    def _count(self, reply: Reply) -> Usage:
        return Usage(
            prompt_tokens=count_request(self._call.request),
            completion_tokens=count_reply(reply),
            cached_tokens=self._call.cached_tokens,
        )


def _error_response(fault: Fault) -> Response:
    headers = {} if fault.retry_after is None else {"retry-after": fault.retry_after}
    if fault.body is not None:
        return Response(fault.body, fault.status, headers=headers, media_type="application/json")
    refusal = Refusal(f"Scripted failure with status {fault.status}.", status=fault.status)
    return JSONResponse(refusal.to_wire(), fault.status, headers=headers)
