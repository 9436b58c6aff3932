"""`python -m demo`: the demo model on a port of its own, until SIGTERM or SIGINT."""

import argparse
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

import uvicorn

from demo.connection import ClosableProtocol
from demo.script import MODEL, respond
from demo.server import create_app

LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
BACKLOG = 2_048
# Answers take less than this; who does not read theirs is cut off.
GRACE_S = 5
CANNOT_LISTEN = 2


class DemoServer(uvicorn.Server):
    """A server that says when it is ready."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve the sockets."""
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"demo model listening on http://{shown}:{port}/v1", flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parse(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server raises the signal once more when all is closed: that is a good end.
        signal.signal(number, _leave)
    try:
        listening = _listen(options.host, options.port)
    except OSError as error:
        sys.stderr.write(
            f"The demo model cannot listen on {options.host} port {options.port}"
            f" ({_explain(error)}): choose another with --port, or --port 0 for any.\n",
        )
        return CANNOT_LISTEN
    config = uvicorn.Config(
        create_app(respond, models=(MODEL,)),
        http=ClosableProtocol,
        ws="none",
        lifespan="off",
        log_level=options.log_level,
        timeout_graceful_shutdown=GRACE_S,
    )
    DemoServer(config).run([listening])
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Run the scripted demo model. It is not an LLM, and needs no key.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=_port, default=0, help="port to listen on; 0 for any free one (%(default)s)"
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning")
    return parser.parse_args(arguments)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:  # noqa: PLR2004 - the range of ports
        raise argparse.ArgumentTypeError(f"{port} is not between 0 and 65535")
    return port


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # As IPv4 and IPv6 servers usually do: a port left a moment ago can be taken again.
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def _explain(error: OSError) -> str:
    # Looking up a name has numbers of its own, below zero.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
