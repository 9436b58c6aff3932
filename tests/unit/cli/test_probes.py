import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cli.ports import find_free_port
from cli.probes import api_is_ready, forget_workers, port_is_open, worker_is_ready

HOST = "127.0.0.1"


class OneAnswerServer(HTTPServer):
    """Answers every request with `status`; `asked` holds the paths."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Handler)
        self.status = 200
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: OneAnswerServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[OneAnswerServer]:
    with OneAnswerServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False)])
def test_api_is_ready_once_it_says_so(
    server: OneAnswerServer, status: int, *, expected: bool
) -> None:
    server.status = status

    assert api_is_ready(HOST, server.server_port)(0) is expected
    assert server.asked == ["/readyz"]


def test_nothing_is_ready_where_nobody_listens(server: OneAnswerServer) -> None:
    free = find_free_port(HOST)

    assert not api_is_ready(HOST, free)(0)
    assert not port_is_open(HOST, free)(0)
    assert port_is_open(HOST, server.server_port)(0)


def test_worker_is_ready_by_the_file_of_its_own_process(tmp_path: Path) -> None:
    (tmp_path / "worker-12.ready").touch()

    assert worker_is_ready(tmp_path)(12)
    assert not worker_is_ready(tmp_path)(1)


def test_only_dead_workers_are_forgotten(tmp_path: Path) -> None:
    alive = tmp_path / f"worker-{os.getpid()}.ready"
    # No process has this id: it is above the largest there is.
    dead = tmp_path / "worker-99999999.ready"
    for path in (alive, dead):
        path.touch()

    forget_workers(tmp_path)

    assert list(tmp_path.iterdir()) == [alive]
