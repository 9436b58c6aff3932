"""Which addresses a tool may connect to: public ones, and those that the operator allows.

The check stands where connections are made, so that neither a name that resolves differently a
moment later nor a redirect gets past it.
"""

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from aiohttp.abc import AbstractResolver, ResolveResult

from shared.errors import ToolError
from shared.settings import Network

IPV4 = 4
# Of IPv6 only global unicast is public. This leaves out IPv4-mapped addresses, NAT64 and all that
# is local.
GLOBAL_UNICAST = ip_network("2000::/3")
# Addresses that pass for public in some Python version and are not, or that stand for others.
NOT_PUBLIC: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",  # metadata of a cloud's virtual machines
            "192.0.0.0/24",  # protocols
            "192.88.99.0/24",  # relays of 6to4
            "2001::/23",  # protocols, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
        ),
    )
)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is one host's on the public internet, and stands for no other."""
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and (address.version == IPV4 or address in GLOBAL_UNICAST)
        and not any(address in network for network in NOT_PUBLIC)
    )


class AddressGate:
    """Refuses connections to addresses that are neither public nor allowed."""

    def __init__(self, allowed: Iterable[Network]) -> None:
        self._allowed = tuple(allowed)

    def check(self, host: str, address: str) -> None:
        """Raise ToolError unless host may be reached at this address."""
        try:
            parsed = ip_address(address)
        except ValueError as error:
            raise ToolError(f"{host} has an address that is not understood: {address}") from error
        if any(parsed in network for network in self._allowed) or is_public(parsed):
            return
        raise ToolError(f"{host} must not be reached: {address} is no public address")

    def open_socket(
        self,
        info: tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]],
    ) -> socket.socket:
        """Return a socket for the one address it will be connected to."""
        family, kind, protocol, _, destination = info
        self.check(destination[0], destination[0])
        return socket.socket(family, kind, protocol)


class CheckedResolver(AbstractResolver):
    """Resolves a name, and refuses it if a single one of its addresses is refused."""

    def __init__(self, gate: AddressGate, resolver: AbstractResolver) -> None:
        self._gate = gate
        self._resolver = resolver

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> list[ResolveResult]:
        """Return the addresses. Raises ToolError if one is refused."""
        results = await self._resolver.resolve(host, port, family)
        for result in results:
            self._gate.check(host, result["host"])
        return results

    async def close(self) -> None:
        """Release the resolver."""
        await self._resolver.close()
