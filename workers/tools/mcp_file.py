"""The file that names MCP servers, in the shape that other programs use as well.

`{"mcpServers": {NAME: {"command", "args", "env", "cwd"} | {"url", "headers"}}}`; in every text
`${VARIABLE}` stands for an environment variable.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, ValidationError

from shared.errors import ConfigurationError
from workers.tools.tool import NAME

REFERENCE = re.compile(r"\$\{(\w+)\}")


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    # Time one call may take; unset: the worker's setting.
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    # Whether a person has to approve each call.
    needs_approval: bool = False


class StdioConfig(_Config):
    """A server that the worker starts and talks to over its standard input and output."""

    type: Literal["stdio"] = "stdio"
    command: Annotated[str, Field(min_length=1)]
    args: list[str] = []
    # Beside a few harmless variables such as PATH and HOME: a server sees no other.
    env: dict[str, str] = {}
    cwd: str | None = None


class HttpConfig(_Config):
    """A server that runs elsewhere and speaks streamable HTTP."""

    type: Literal["http", "streamable-http"] = "http"
    url: AnyHttpUrl
    headers: dict[str, str] = {}


McpConfig = StdioConfig | HttpConfig


def read_mcp_file(path: Path, environment: Mapping[str, str]) -> dict[str, McpConfig]:
    """Return the servers by name, in the file's order.

    Raises ConfigurationError if the file cannot be read, says something that is not understood, or
    refers to a variable that is not set.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        servers = content["mcpServers"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"TURNMILL_MCP_FILE: {path} cannot be read ({type(error).__name__}: {error}): it must"
            ' hold {"mcpServers": {…}} as JSON',
        ) from error
    return {name: _read_server(path, name, given, environment) for name, given in servers}


def _read_server(
    path: Path,
    name: str,
    given: object,
    environment: Mapping[str, str],
) -> McpConfig:
    place = f"TURNMILL_MCP_FILE: {path}: {name}"
    if not NAME.fullmatch(name):
        raise ConfigurationError(f"{place} cannot be a server's name: use {NAME.pattern}")
    kind = HttpConfig if isinstance(given, dict) and "url" in given else StdioConfig
    try:
        return kind.model_validate(_resolve(given, environment))
    except KeyError as error:
        raise ConfigurationError(f"{place}: the variable {error.args[0]} is not set") from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ConfigurationError(f"{place}: {where}: {problem['msg']}") from error


def _resolve(value: object, environment: Mapping[str, str]) -> object:
    """Return the value with references replaced. Raises KeyError with a variable's name."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda found: environment[found[1]], value)
    if isinstance(value, list):
        return [_resolve(item, environment) for item in value]
    if isinstance(value, dict):
        return {key: _resolve(item, environment) for key, item in value.items()}
    return value
