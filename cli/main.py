"""The command `turnmill`. Starts the product's processes; imports none of their code.

An error of ours is one sentence on standard error and exit code 2.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import click

from cli import programs
from cli.limits import raise_file_limit
from cli.lock import make_data_dir
from cli.model_choice import DEMO_MODEL, needs_demo
from cli.models import models
from cli.plan import Choices, make_plan
from cli.ports import check_port
from cli.restarts import REFUSED
from cli.terminal import Terminal
from cli.up import run_up
from shared.errors import TurnmillError
from shared.migrate import upgrade
from shared.settings import Settings, unknown_variables
from shared.task_names import TURNS_QUEUE

MOST_WORKERS = 64
MOST_SLOTS = 20_000
LAST_PORT = 65_535


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turnmill", message="turnmill %(version)s")
def cli() -> None:
    """Durable agent chat at high volume."""


@cli.command()
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    default=1,
    show_default=True,
    help="Worker processes.",
)
@click.option("--no-worker", is_flag=True, help="Start no worker: turns wait.")
@click.option("--no-flower", is_flag=True, help="Start no Flower.")
@click.option("--port", type=click.IntRange(0, LAST_PORT), help="Port of the API; 0 for any.")
@click.option("--verbose", is_flag=True, help="Show every line that the processes write.")
def up(*, workers: int, no_worker: bool, no_flower: bool, port: int | None, verbose: bool) -> None:
    """Run everything on this machine: API, workers, Flower and what they need.

    Redis and the database are embedded unless TURNMILL_REDIS_URL and TURNMILL_DATABASE_URL are
    set; a scripted demo model answers unless LLM_MODEL is.
    """
    choices = Choices(workers=0 if no_worker else workers, with_flower=not no_flower, port=port)
    plan = make_plan(read_settings(), choices, environment=os.environ, directory=str(Path.cwd()))
    raise_file_limit()
    sys.exit(run_up(plan, Terminal(is_verbose=verbose)))


@cli.command()
def api() -> None:
    """Run the HTTP API."""
    settings = read_settings(needs_broker=True)
    check_port(
        settings.host,
        settings.port,
        what="The API",
        remedy="choose another with TURNMILL_PORT",
    )
    become(programs.api_command(settings))


@cli.command()
@click.option("--queues", default=TURNS_QUEUE, show_default=True, help="Separated by commas.")
@click.option("--name", help="Unique on this machine.  [default: worker-<process id>]")
@click.option("--slots", type=click.IntRange(1, MOST_SLOTS), help="Turns or tool calls at once.")
def worker(*, queues: str, name: str | None, slots: int | None) -> None:
    """Run a worker process."""
    settings = read_settings(needs_broker=True)
    command = programs.worker_command(
        settings,
        name=name or f"worker-{os.getpid()}",
        queues=queues.split(","),
        slots=slots,
    )
    make_data_dir(settings.data_dir)
    become(command)


@cli.command()
def flower() -> None:
    """Run Flower, which shows workers and tasks."""
    settings = read_settings(needs_broker=True)
    secrets = programs.flower_environment(settings)
    check_port(
        settings.flower_host,
        settings.flower_port,
        what="Flower",
        remedy="choose another with TURNMILL_FLOWER_PORT",
    )
    become(programs.flower_command(settings), secrets)


@cli.command()
def migrate() -> None:
    """Create the database's schema or bring it up to date."""
    upgrade(read_settings())
    click.echo("The database is up to date.")


@cli.command()
@click.argument("conversation")
@click.option("--input", "text", help="The message to come, to be measured too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def context(*, conversation: str, text: str | None, as_json: bool) -> None:
    """Show what the next request of a CONVERSATION would hold.

    Nothing is sent and nothing is changed. Model, instructions and tools are those of its newest
    turn.
    """
    demo = {"LLM_MODEL": DEMO_MODEL} if needs_demo(read_settings()) else {}
    become(programs.preview_command(conversation, text=text, as_json=as_json), demo)


cli.add_command(models)


def read_settings(*, needs_broker: bool = False) -> Settings:
    """Read the environment; report variables that nothing reads.

    needs_broker: refuse here, with a sentence, what would be a traceback in another process.
    """
    for name in unknown_variables():
        click.echo(f"turnmill: {name} is set, but there is no such setting", err=True)
    settings = Settings.from_environment()
    if needs_broker:
        _ = settings.broker_url
    return settings


def become(command: programs.Command, variables: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process by a command. variables: set for it beside the ones there are."""
    raise_file_limit()
    environment = {**os.environ, **(variables or {})}
    os.execve(
        command[0],
        command,
        programs.module_environment(environment, directory=str(Path.cwd())),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    try:
        cli(arguments)
    except TurnmillError as error:
        click.echo(f"turnmill: {error.message}", err=True)
        sys.exit(REFUSED)
