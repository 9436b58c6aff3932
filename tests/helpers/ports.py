"""Ports for servers that tests stop and start again."""

import random
import socket

# Below the range from which systems take the ports of outgoing connections (32768 on Linux,
# 49152 on macOS): such a connection could else take the port of a server that is down, or a
# client that dials the dead server could be connected to itself.
FIRST_PORT = 20_000
LAST_PORT = 32_000
TRIES = 200


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on.

    Chosen at random, so that parallel test processes rarely meet.
    Raises RuntimeError if none is found.
    """
    for _ in range(TRIES):
        port = random.randrange(FIRST_PORT, LAST_PORT)
        if is_free(port):
            return port
    raise RuntimeError(f"no free port between {FIRST_PORT} and {LAST_PORT}")


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
