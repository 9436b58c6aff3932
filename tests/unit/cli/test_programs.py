import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import programs
from shared.errors import ConfigurationError
from shared.settings import Settings

DEFAULT = Settings.from_environment({})


def test_api_listens_where_the_settings_say() -> None:
    settings = Settings.from_environment({"TURNMILL_HOST": "::1", "TURNMILL_PORT": "81"})

    command = programs.api_command(settings)

    assert command[command.index("--host") + 1] == "::1"
    assert command[command.index("--port") + 1] == "81"


def test_worker_takes_name_queues_and_slots() -> None:
    command = programs.worker_command(DEFAULT, name="w", queues=["turns"], slots=7)

    assert command[command.index("--hostname") + 1] == "w@%h"
    assert command[command.index("--queues") + 1] == "turns"
    assert command[command.index("--concurrency") + 1] == "7"


def test_unknown_queue_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no queue `turn`: choose from tools, turns"):
        programs.worker_command(DEFAULT, name="w", queues=["turn"], slots=7)


def test_tools_run_in_processes_of_a_worker_of_their_own() -> None:
    command = programs.worker_command(DEFAULT, name="w", queues=["tools"])

    assert command[command.index("--pool") + 1] == "prefork"
    assert command[command.index("--concurrency") + 1] == str(DEFAULT.tool_processes)
    with pytest.raises(ConfigurationError, match="needs a worker of its own"):
        programs.worker_command(DEFAULT, name="w", queues=["turns", "tools"])


def test_flower_on_loopback_needs_no_password() -> None:
    assert programs.flower_environment(DEFAULT) == {}


def test_flower_open_to_others_is_refused() -> None:
    settings = Settings.from_environment({"TURNMILL_FLOWER_HOST": "0.0.0.0"})

    with pytest.raises(ConfigurationError, match="TURNMILL_FLOWER_BASIC_AUTH"):
        programs.flower_environment(settings)


def test_password_of_flower_is_not_on_its_command_line() -> None:
    settings = Settings.from_environment(
        {"TURNMILL_FLOWER_HOST": "0.0.0.0", "TURNMILL_FLOWER_BASIC_AUTH": "user:secret"},
    )

    assert programs.flower_environment(settings) == {"FLOWER_BASIC_AUTH": "user:secret"}
    assert "secret" not in " ".join(programs.flower_command(settings))


@pytest.mark.parametrize("auth", ["secret", ":secret", "user:", "user:sec,ret"])
def test_password_that_flower_would_misread_is_refused(auth: str) -> None:
    settings = Settings.from_environment({"TURNMILL_FLOWER_BASIC_AUTH": auth})

    with pytest.raises(ConfigurationError, match="must be user:password") as caught:
        programs.flower_environment(settings)

    assert "sec" not in caught.value.message


def test_folders_of_the_user_do_not_hide_our_packages(tmp_path: Path) -> None:
    for name in ("api", "shared", "workers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "my_tools.py").touch()
    code = "import shared, my_tools; print(shared.__file__)"
    environment = programs.module_environment(os.environ, directory=str(tmp_path))

    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )

    assert Path(found.stdout.strip()) == programs.ROOT / "shared" / "__init__.py"


def test_module_path_of_the_user_is_kept() -> None:
    environment = programs.module_environment({"PYTHONPATH": f"/a{os.pathsep}/b"}, directory="/c")

    assert environment["PYTHONPATH"].split(os.pathsep) == [str(programs.ROOT), "/a", "/b", "/c"]
