import socket
from collections.abc import Iterator

import pytest

from cli.ports import check_port, find_free_port, http_url, is_loopback, is_port_free
from shared.errors import ConfigurationError


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_taken_port_is_refused_with_a_remedy(taken_port: int, host: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_port(host, taken_port, what="The API", remedy="choose another with --port")

    assert caught.value.message == (
        f"The API cannot listen on {host} port {taken_port}: it is in use. Stop what listens there,"
        " or choose another with --port"
    )


def test_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"assign requested address\. To go on, x"):
        check_port("192.0.2.1", 8080, what="The API", remedy="x")


def test_free_port_is_free_and_not_one_of_outgoing_connections() -> None:
    port = find_free_port("127.0.0.1")

    assert is_port_free("127.0.0.1", port)
    assert 20_000 <= port <= 32_000
    check_port("127.0.0.1", port, what="The API", remedy="x")


def test_port_zero_is_always_fine() -> None:
    check_port("127.0.0.1", 0, what="The API", remedy="x")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("turnmill.internal", "http://turnmill.internal:80"),
    ],
)
def test_url_can_be_opened_on_this_machine(host: str, url: str) -> None:
    assert http_url(host, 80) == url


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("flower.internal", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected
