"""Ports and addresses: whether a server could listen there, and what a browser would call it."""

import errno
import ipaddress
import random
import socket

from shared.errors import ConfigurationError

# Below the range from which systems take the ports of outgoing connections (32768 on Linux,
# 49152 on macOS). Such a connection could take the port of a server while it is started again,
# and a client that dials a dead server could even be connected to itself.
FIRST_FREE_PORT = 20_000
LAST_FREE_PORT = 32_000
TRIES = 200

# "All addresses" is nowhere to connect to.
ANY_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def check_port(host: str, port: int, *, what: str, remedy: str) -> None:
    """Bind the address for a moment. Port 0 is always fine.

    what: who wants to listen there. remedy: what the user can do, to end the sentence.
    Raises ConfigurationError if it cannot be had.
    """
    try:
        _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            advice = f"it is in use. Stop what listens there, or {remedy}"
        else:
            advice = f"{error.strerror or error}. To go on, {remedy}"
        raise ConfigurationError(f"{what} cannot listen on {host} port {port}: {advice}") from error


def is_port_free(host: str, port: int) -> bool:
    """Tell whether a server could listen there now."""
    try:
        _bind(host, port)
    except OSError:
        return False
    return True


def find_free_port(host: str) -> int:
    """Return a port that nobody listens on. Raises ConfigurationError if none is found."""
    for _ in range(TRIES):
        port = random.randint(FIRST_FREE_PORT, LAST_FREE_PORT)  # noqa: S311 - no secret
        if is_port_free(host, port):
            return port
    raise ConfigurationError(
        f"There is no free port on {host} between {FIRST_FREE_PORT} and {LAST_FREE_PORT}",
    )


def http_url(host: str, port: int) -> str:
    """Return the URL under which this machine reaches a server that listens there."""
    name = reachable_host(host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def reachable_host(host: str) -> str:
    """Return the address under which this machine reaches a server that listens on host."""
    return ANY_ADDRESSES.get(host, host)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bind(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None,
        port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        # As servers do: a port left a moment ago can be taken again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
