"""The command's edge, in processes of its own: what a user sees and the exit code."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import cli

ROOT = Path(__file__).parents[3]
FOREIGN_PREFIXES = ("TURNMILL_", "LLM_", "OPENAI_")
# Nobody listens there: nothing is started that would need it.
REDIS = {"TURNMILL_REDIS_URL": "redis://127.0.0.1:1/0"}


def turnmill(
    *arguments: str, folder: Path, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)
    }
    return subprocess.run(
        [sys.executable, "-c", "from cli.main import main; main()", *arguments],
        env={**clean, "PYTHONPATH": str(ROOT), **(environment or {})},
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("command", "environment", "sentence"),
    [
        ("api", {}, "TURNMILL_REDIS_URL is not set: give the URL of a Redis server"),
        ("worker", {}, "TURNMILL_REDIS_URL is not set"),
        ("flower", {}, "TURNMILL_REDIS_URL is not set"),
        ("worker", {**REDIS, "TURNMILL_DATA_DIR": "/dev/null/x"}, "/dev/null/x cannot be written"),
        ("flower", {**REDIS, "TURNMILL_FLOWER_HOST": "0.0.0.0"}, "TURNMILL_FLOWER_BASIC_AUTH"),
        ("migrate", {"TURNMILL_PORT": "x"}, "TURNMILL_PORT"),
        ("up", {"LLM_API_KEY": "k"}, "set LLM_MODEL"),
        ("up", {"TURNMILL_DATA_DIR": "/dev/null/x"}, "/dev/null/x cannot be written"),
        ("up", {**REDIS, "TURNMILL_PORT": "0"}, "check TURNMILL_REDIS_URL"),
    ],
)
def test_error_is_one_sentence_and_exit_code_2(
    tmp_path: Path, command: str, environment: dict[str, str], sentence: str
) -> None:
    done = turnmill(command, folder=tmp_path, environment=environment)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.startswith("turnmill: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("command", "variable"), [("api", "TURNMILL_PORT"), ("flower", "TURNMILL_FLOWER_PORT")]
)
def test_busy_port_is_said_before_the_start(tmp_path: Path, command: str, variable: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = turnmill(command, folder=tmp_path, environment={**REDIS, variable: port})

    assert done.returncode == 2
    assert f"port {port}: it is in use" in done.stderr
    assert variable in done.stderr


def test_unknown_variable_is_reported(tmp_path: Path) -> None:
    done = turnmill("migrate", folder=tmp_path, environment={"TURNMILL_DATADIR": "x"})

    assert done.returncode == 0, done.stderr
    assert done.stderr == "turnmill: TURNMILL_DATADIR is set, but there is no such setting\n"
    assert (tmp_path / ".turnmill" / "turnmill.sqlite3").exists()


def test_unknown_queue_is_refused(tmp_path: Path) -> None:
    done = turnmill("worker", "--queues", "turns,steps", folder=tmp_path, environment=REDIS)

    assert done.returncode == 2
    assert "There is no queue `steps`" in done.stderr


@pytest.mark.parametrize("arguments", [["up", "--workers", "0"], ["up", "--port", "65536"], ["x"]])
def test_wrong_use_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, arguments).exit_code == 2


def test_help_names_every_command() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output

    for command in ("up", "api", "worker", "flower", "migrate"):
        assert f"\n  {command} " in text
