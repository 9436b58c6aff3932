"""`python -m demo` as a process of its own."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "demo")
READY = "demo model listening on "


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_ends_well(
    process: subprocess.Popen[str],
    number: signal.Signals,
) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(READY)
    with OpenAI(base_url=line.removeprefix(READY).strip(), api_key="none") as client:
        answer = client.chat.completions.create(
            model="turnmill-demo",
            messages=[{"role": "user", "content": "Hello"}],
        )

    process.send_signal(number)
    output, errors = process.communicate(timeout=10)

    assert "not an LLM" in (answer.choices[0].message.content or "")
    assert (process.returncode, output, errors) == (0, "", "")


def test_busy_port_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*COMMAND, "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        f"The demo model cannot listen on 127.0.0.1 port {port} (Address already in use): choose"
        " another with --port, or --port 0 for any.\n"
    )
