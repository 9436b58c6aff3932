"""`turnmill models`: the rows of `/v1/models`, on the command line and without a running API."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, get_args

import click
import orjson
from pydantic import ValidationError
from sqlalchemy import Connection

from shared.database import create_sync_engine, storage_errors
from shared.errors import InvalidInputError, NotFoundError
from shared.migrate import check_file, check_schema
from shared.model_spec import MODEL_NAME, ModelSpec, Role
from shared.refusals import explain_all
from shared.repositories import model_configs
from shared.repositories.model_configs import ModelConfig
from shared.settings import Settings

SHOWN = (
    *("name", "role", "context_size", "max_output_tokens", "tool_call", "json_mode", "fallback"),
    *("max_in_flight", "requests_per_minute", "tokens_per_minute", "base_url", "api_key_env"),
)


@click.group()
def models() -> None:
    """Show and set models: their roles, limits and addresses.

    What a model leaves out comes from the workers' environment (LLM_BASE_URL, LLM_CONTEXT_SIZE …).
    Turns that are claimed from then on see a change.
    """


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_models(*, as_json: bool) -> None:
    """Show all models."""
    with _transaction() as connection:
        found = model_configs.list_model_configs(connection)
    if as_json:
        click.echo(orjson.dumps([asdict(item) for item in found]))
        return
    if not found:
        click.echo("No model is configured: turns use the environment's (LLM_MODEL).")
        return
    rows = [[_shown(getattr(item, name)) for name in SHOWN] for item in found]
    widths = [max(len(row[at]) for row in [list(SHOWN), *rows]) for at in range(len(SHOWN))]
    for row in [list(SHOWN), *rows]:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


@models.command("set")
@click.argument("name")
@click.option("--role", type=click.Choice(get_args(Role)), help="Taken over from any other model.")
@click.option("--base-url", help="Of an OpenAI-compatible provider.")
@click.option("--api-key-env", help="Variable of the workers that holds the key: LLM_…KEY.")
@click.option("--context-size", type=int, help="Tokens of prompt and answer together.")
@click.option("--max-output-tokens", type=int, help="Tokens kept for the answer.")
@click.option("--tool-call/--no-tool-call", default=None, help="Calls tools; else JSON mode.")
@click.option("--json-mode/--no-json-mode", default=None, help="Knows response_format.")
@click.option("--fallback", help="Model that is called while this one cannot be.")
@click.option("--max-in-flight", type=int, help="Calls at once, of all workers together.")
@click.option("--requests-per-minute", type=int, help="Calls in any 60 seconds, likewise.")
@click.option("--tokens-per-minute", type=int, help="Tokens in any 60 seconds, likewise.")
def set_model(name: str, **values: Any) -> None:  # noqa: ANN401 - the specification checks them
    """Create or replace the model NAME. What is not given comes from the environment."""
    try:
        config = ModelConfig(
            name=MODEL_NAME.validate_python(name),
            **ModelSpec(**values).model_dump(),
        )
    except ValidationError as error:
        raise InvalidInputError(explain_all(error, name_of=_option)) from error
    with _transaction() as connection:
        before = model_configs.get_model_config(connection, name)
        model_configs.put_model_config(connection, config)
    if before is None:
        click.echo(f"{name} is added.")
        return
    gone = [_option(it) for it in ModelSpec.model_fields if _is_dropped(it, before, config)]
    click.echo(f"{name} is replaced." + (f" No longer set: {', '.join(gone)}." if gone else ""))


@models.command("delete")
@click.argument("name")
def delete_model(*, name: str) -> None:
    """Delete the model NAME."""
    with _transaction() as connection:
        is_gone = model_configs.delete_model_config(connection, name)
    if not is_gone:
        raise NotFoundError(f"There is no model {name}: `turnmill models list` shows all")
    click.echo(f"{name} is deleted.")


@contextmanager
def _transaction() -> Iterator[Connection]:
    settings = Settings.from_environment()
    check_file(settings)
    engine = create_sync_engine(settings)
    try:
        with storage_errors(), engine.begin() as connection:
            check_schema(connection)
            yield connection
    finally:
        engine.dispose()


def _is_dropped(field: str, before: ModelConfig, after: ModelConfig) -> bool:
    return getattr(before, field) is not None and getattr(after, field) is None


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}" if field in ModelSpec.model_fields else ""
