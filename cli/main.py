"""The command `turnmill`: each process of the product by name."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from shared.errors import TurnmillError
from shared.migrate import upgrade
from shared.settings import Settings, unknown_variables

REFUSED = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Durable agent chat at high volume."""


@cli.command()
def migrate() -> None:
    """Create the database's schema or bring it up to date."""
    upgrade(read_settings())


@cli.command()
def api() -> None:
    """Run the HTTP API."""
    settings = read_settings()
    become(
        "uvicorn",
        "api.app:create_app",
        "--factory",
        *("--host", settings.host, "--port", str(settings.port)),
        *("--no-access-log", "--no-server-header", "--timeout-graceful-shutdown", "10"),
    )


@cli.command()
def worker() -> None:
    """Run a worker process."""
    settings = read_settings()
    become(
        "celery",
        *("-A", "workers.app", "worker", "--pool", "threads"),
        *("--concurrency", str(settings.worker_slots), "--queues", "turns"),
        *("--hostname", f"turns-{os.getpid()}@%h"),
        *("--task-events", "--without-gossip", "--without-mingle", "--loglevel", "INFO"),
    )


def read_settings() -> Settings:
    """Read the environment; report variables that nothing reads."""
    for name in unknown_variables():
        click.echo(f"turnmill: {name} is set, but there is no such setting", err=True)
    return Settings.from_environment()


def become(module: str, *arguments: str) -> NoReturn:
    """Replace this process by a Python module."""
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an error is one sentence and exit code 2."""
    try:
        cli(arguments)
    except TurnmillError as error:
        click.echo(f"turnmill: {error.message}", err=True)
        sys.exit(REFUSED)


