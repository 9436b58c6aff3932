"""The file by which a worker process shows that it takes turns; touched while its loop lives."""

from pathlib import Path

PATTERN = "worker-*.ready"


def ready_file(data_dir: Path, pid: int) -> Path:
    """Return the path of a process's file."""
    return data_dir / f"worker-{pid}.ready"


def read_pid(path: Path) -> int:
    """Return the process id that a path of PATTERN names. Raises ValueError if it names none."""
    return int(path.stem.removeprefix("worker-"))
