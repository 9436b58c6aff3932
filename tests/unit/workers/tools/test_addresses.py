import socket
from ipaddress import ip_network

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from shared.errors import ToolError
from workers.tools.addresses import AddressGate, CheckedResolver

PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:800::200e"]
NOT_PUBLIC = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "3fff::1",
    "4000::1",
    "2002:7f00:1::",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "0177.0.0.1",
    "127.1",
    "2130706433",
    "",
]


class Names(AbstractResolver):
    """A name service that says what a test wants; each answer is given once."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.answers.pop(0)
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_may_be_reached(address: str) -> None:
    AddressGate([]).check("host", address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_other_address_is_refused(address: str) -> None:
    with pytest.raises(ToolError, match="host "):
        AddressGate([]).check("host", address)


def test_allowed_network_may_be_reached() -> None:
    gate = AddressGate([ip_network("10.1.0.0/16"), ip_network("fd00::/8")])

    for address in ("10.1.2.3", "fd00::1", "8.8.8.8"):
        gate.check("host", address)
    for address in ("10.2.0.1", "fe80::1", "::ffff:10.1.2.3"):
        with pytest.raises(ToolError):
            gate.check("host", address)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0177.0.0.1"])
def test_no_socket_is_opened_to_a_refused_address(address: str) -> None:
    with pytest.raises(ToolError):
        AddressGate([]).open_socket(
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 80)),
        )


async def test_one_refused_address_refuses_the_name() -> None:
    names = Names(["8.8.8.8"], ["8.8.8.8", "10.0.0.1"])
    resolver = CheckedResolver(AddressGate([]), names)

    assert [found["host"] for found in await resolver.resolve("host")] == ["8.8.8.8"]
    with pytest.raises(ToolError, match=r"host must not be reached: 10\.0\.0\.1 is no"):
        await resolver.resolve("host")
