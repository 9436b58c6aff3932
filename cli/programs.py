"""Command lines of the product's processes, and the parts of their environment that all share.

Modules are found where this package lies, never in the directory in which the user happens to
be: a folder `api` or `workers` there is not ours.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.ports import is_loopback
from shared.errors import ConfigurationError
from shared.settings import Settings
from shared.task_names import QUEUES, TOOLS_QUEUE

ROOT = Path(__file__).resolve().parent.parent
# Gives uvicorn's loggers no handlers: their lines go through what the application sets up.
UVICORN_LOGS = Path(__file__).with_name("uvicorn_logs.json")

# How long open requests may take after SIGTERM. Event streams are ended at once.
API_GRACE_S = 10
# Longer than load balancers keep an idle connection (60 s), so that they close it first.
KEEP_ALIVE_S = 75
FLOWER_TASKS = 20_000
FLOWER_PURGE_S = 300

Command = tuple[str, ...]


def api_command(settings: Settings) -> Command:
    """Return the command line of an API process."""
    return python_module(
        "uvicorn",
        "api.app:create_app",
        "--factory",
        *("--host", settings.host, "--port", str(settings.port)),
        *("--app-dir", str(ROOT)),
        *("--log-config", str(UVICORN_LOGS), "--log-level", settings.log_level.lower()),
        *("--no-access-log", "--no-server-header", "--lifespan", "on", "--ws", "none"),
        *("--timeout-keep-alive", str(KEEP_ALIVE_S)),
        *("--timeout-graceful-shutdown", str(API_GRACE_S)),
    )


def worker_command(
    settings: Settings,
    *,
    name: str,
    queues: Sequence[str],
    slots: int | None = None,
) -> Command:
    """Return the command line of a worker process.

    name: unique on its host. slots: None: as the settings say for what it runs.
    Raises ConfigurationError for a queue that no task goes to, or for queues that need
    different kinds of workers.
    """
    known = sorted(set(QUEUES.values()))
    for queue in queues:
        if queue not in known:
            raise ConfigurationError(f"There is no queue `{queue}`: choose from {', '.join(known)}")
    if TOOLS_QUEUE in queues and len(queues) > 1:
        raise ConfigurationError(
            f"The queue `{TOOLS_QUEUE}` needs a worker of its own, which forks processes: start one"
            " for it beside the others",
        )
    if TOOLS_QUEUE in queues:
        module, pool, default = "workers.tools_app", "prefork", settings.tool_processes
    else:
        module, pool, default = "workers.app", "threads", settings.worker_slots
    return python_module(
        "celery",
        *("-A", module, "worker"),
        *("--pool", pool, "--concurrency", str(slots or default)),
        *("--queues", ",".join(queues), "--hostname", f"{name}@%h"),
        *("--task-events", "--without-gossip", "--without-mingle"),
        *("--loglevel", settings.log_level),
    )


def flower_command(settings: Settings) -> Command:
    """Return the command line of Flower. The password goes by `flower_environment`."""
    return python_module(
        "celery",
        *("-A", "workers.app", "flower"),
        f"--address={settings.flower_host}",
        f"--port={settings.flower_port}",
        f"--max_tasks={FLOWER_TASKS}",
        f"--purge_offline_workers={FLOWER_PURGE_S}",
        f"--logging={settings.log_level.lower()}",
    )


def flower_environment(settings: Settings) -> dict[str, str]:
    """Return Flower's own variables: command lines are visible to every user, these are not.

    Raises ConfigurationError if Flower would be open to other machines.
    """
    if settings.flower_basic_auth is None:
        if is_loopback(settings.flower_host):
            return {}
        raise ConfigurationError(
            f"Flower would be open to everybody who reaches {settings.flower_host}: set"
            " TURNMILL_FLOWER_BASIC_AUTH to user:password, or TURNMILL_FLOWER_HOST to 127.0.0.1",
        )
    auth = settings.flower_basic_auth.get_secret_value()
    if not all(auth.partition(":")) or "," in auth:
        # Flower takes a comma for the end of one user.
        raise ConfigurationError(
            "TURNMILL_FLOWER_BASIC_AUTH must be user:password without a comma",
        )
    return {"FLOWER_BASIC_AUTH": auth}


def preview_command(conversation: str, *, text: str | None, as_json: bool) -> Command:
    """Return the command line that shows a conversation's next request."""
    options = [*(["--json"] if as_json else []), *([f"--input={text}"] if text else [])]
    return python_module("workers.preview", *options, "--", conversation)


def demo_command(host: str, port: int) -> Command:
    """Return the command line of the demo model."""
    return python_module("demo", "--host", host, "--port", str(port))


def python_module(module: str, *arguments: str) -> Command:
    """Return the command line that runs a module with this interpreter."""
    # -P: without it, `-m` looks into the current directory first.
    return (sys.executable, "-P", "-m", module, *arguments)


def module_environment(environment: Mapping[str, str], *, directory: str) -> dict[str, str]:
    """Return the environment with a module path on which our packages come first.

    directory: the current one, searched last, for tools of the user's own (`TURNMILL_TOOLS`).
    """
    earlier = environment.get("PYTHONPATH", "").split(os.pathsep)
    path = dict.fromkeys([str(ROOT), *filter(None, earlier), directory])
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}
