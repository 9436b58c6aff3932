import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.lock import hold_data_dir, make_data_dir
from shared.errors import ConfigurationError

URL = "http://127.0.0.1:8080"
# Holds the directory until it is killed; says so first.
HOLD = """
import sys, pathlib
from cli.lock import hold_data_dir
with hold_data_dir(pathlib.Path(sys.argv[1]), url="http://127.0.0.1:8080"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_directory_is_made_and_the_holder_named(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"

    with hold_data_dir(path, url=URL):
        holder = json.loads((path / "lock").read_text(encoding="utf-8"))

    assert holder["pid"] == os.getpid()
    assert holder["url"] == URL
    assert set(holder) == {"pid", "host", "started_at", "url"}


def test_second_holder_is_told_who_was_first(tmp_path: Path) -> None:
    with (
        hold_data_dir(tmp_path, url=URL),
        pytest.raises(ConfigurationError) as caught,
        hold_data_dir(tmp_path, url="http://127.0.0.1:9"),
    ):
        raise AssertionError("both hold it")

    assert f"(process {os.getpid()} on " in caught.value.message
    assert f", API at {URL})" in caught.value.message
    assert "TURNMILL_DATA_DIR" in caught.value.message


def test_directory_can_be_held_again_after_release(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_data_dir(tmp_path, url=URL):
            pass

    assert (tmp_path / "lock").read_text(encoding="utf-8") == ""


def test_holder_that_has_not_said_who_it_is_still_holds(tmp_path: Path) -> None:
    with hold_data_dir(tmp_path, url=URL):
        (tmp_path / "lock").write_text("", encoding="utf-8")
        with (
            pytest.raises(ConfigurationError, match="just starting or stopping"),
            hold_data_dir(tmp_path, url=URL),
        ):
            raise AssertionError("both hold it")


def test_killed_holder_holds_no_longer(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with (
            pytest.raises(ConfigurationError, match=f"process {process.pid} on"),
            hold_data_dir(tmp_path, url=URL),
        ):
            raise AssertionError("both hold it")
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    with hold_data_dir(tmp_path, url=URL):
        pass


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        ConfigurationError, match=r"file/data cannot be written \(Not a directory\)"
    ):
        make_data_dir(tmp_path / "file" / "data")
