"""Every setting, once: read from the environment at an entry point, frozen, then passed down.

Nothing else in the project reads the environment. A wrong value is refused at start with one
sentence that names the variable; an unknown `TURNMILL_` variable is reported, not ignored.
"""

import os
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from shared.errors import ConfigurationError
from shared.refusals import explain_all

PREFIX = "TURNMILL_"
DATABASE_SCHEMES = ("postgresql", "postgres", "sqlite")
REDIS_SCHEMES = ("redis", "rediss")

Network = IPv4Network | IPv6Network

# At most a month: more is a slip, and clocks have their limits.
Seconds = Annotated[float, Field(gt=0, le=2_592_000, allow_inf_nan=False)]


def _env(name: str) -> str:
    return f"{PREFIX}{name}"


# What a column of the database holds.
MAX_COUNT = 2**31 - 1


class Settings(BaseModel):
    """All settings of one process. Durations are seconds, sizes are bytes unless named tokens."""

    model_config = ConfigDict(frozen=True)

    data_dir: Path = Field(Path(".turnmill"), alias=_env("DATA_DIR"))
    """Where embedded parts keep their files: the SQLite database, sockets, the lock."""

    database_url: str | None = Field(None, alias=_env("DATABASE_URL"))
    """`postgresql://…`; unset: SQLite in the data directory."""

    redis_url: str | None = Field(None, alias=_env("REDIS_URL"))
    """`redis://…`; unset: only `turnmill up` works, with an embedded server."""

    events_redis_url: str | None = Field(None, alias=_env("EVENTS_REDIS_URL"))
    """A Redis of its own for event streams and control channels; unset: the broker's."""

    host: str = Field("127.0.0.1", alias=_env("HOST"))
    """Address the API listens on."""

    port: int = Field(8080, ge=0, le=65535, alias=_env("PORT"))
    """Port the API listens on; 0 takes a free one."""

    flower_host: str = Field("127.0.0.1", alias=_env("FLOWER_HOST"))
    """Address Flower listens on."""

    flower_port: int = Field(5555, ge=0, le=65535, alias=_env("FLOWER_PORT"))
    """Port Flower listens on; 0 takes a free one."""

    flower_basic_auth: SecretStr | None = Field(None, alias=_env("FLOWER_BASIC_AUTH"))
    """`user:password` for Flower; required when it listens beyond loopback."""

    log_format: str = Field("auto", pattern="^(auto|console|json)$", alias=_env("LOG_FORMAT"))
    """`console`, `json`, or `auto`: console on a terminal, else JSON."""

    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", alias=_env("LOG_LEVEL"))
    """Least severe level that is written."""

    worker_slots: int = Field(1000, ge=1, le=20_000, alias=_env("WORKER_SLOTS"))
    """Turns one worker process holds at once; most of them wait on models."""

    lease_s: Seconds = Field(15.0, ge=3, alias=_env("LEASE_S"))
    """How long a claim holds without renewal; renewed every third of it."""

    sweep_s: Seconds = Field(3.0, alias=_env("SWEEP_S"))
    """Mean pause between two sweeps of a worker process, jittered by a third."""

    drain_s: Seconds = Field(25.0, alias=_env("DRAIN_S"))
    """After SIGTERM: time for turns to end or reach a journal point before they are handed over."""

    max_crashes: int = Field(5, ge=1, alias=_env("MAX_CRASHES"))
    """Lapsed leases of one turn after which it is failed instead of taken up again."""

    turn_timeout_s: Seconds = Field(1800.0, alias=_env("TURN_TIMEOUT_S"))
    """Time from a turn's first claim to its deadline."""

    tool_timeout_s: Seconds = Field(60.0, alias=_env("TOOL_TIMEOUT_S"))
    """Time one tool call may take unless the tool says otherwise."""

    approval_timeout_s: Seconds = Field(86_400.0, alias=_env("APPROVAL_TIMEOUT_S"))
    """Time to approve a tool call before it counts as refused."""

    tool_processes: int = Field(2, ge=1, le=1000, alias=_env("TOOL_PROCESSES"))
    """Calls that one tools worker runs at once, each in a process of its own."""

    tools: str = Field("", alias=_env("TOOLS"))
    """Tools of your own, separated by commas: `module:name` is a tool or a list of tools, `@name`
    an entry point of the group `turnmill.tools`."""

    tool_hooks: str = Field("", alias=_env("TOOL_HOOKS"))
    """Hooks around every tool call, in order, named as tools are; entry points are of the group
    `turnmill.tool_hooks`."""

    mcp_file: Path | None = Field(None, alias=_env("MCP_FILE"))
    """JSON file that names MCP servers (`{"mcpServers": {…}}`); needs the extra `turnmill[mcp]`."""

    mcp_connect_timeout_s: Seconds = Field(10.0, alias=_env("MCP_CONNECT_TIMEOUT_S"))
    """Time an MCP server has to connect and to list its tools; a worker's start waits for it."""

    builtin_tools: str = Field(
        "calculator,current_time,text_search,http_get,json_query",
        alias=_env("BUILTIN_TOOLS"),
    )
    """The tools of the product that are offered, separated by commas; `none` for none."""

    tool_http_allow: str = Field("", alias=_env("TOOL_HTTP_ALLOW"))
    """Networks that `http_get` may reach although they are not public, separated by commas, such as
    `10.1.0.0/16,fd00::/8`."""

    tool_http_max_bytes: int = Field(1_000_000, ge=1_000, alias=_env("TOOL_HTTP_MAX_BYTES"))
    """Most that `http_get` reads of one answer."""

    event_ttl_s: int = Field(3600, ge=1, alias=_env("EVENT_TTL_S"))
    """How long a turn's event stream is kept in Redis after its terminal event."""

    max_body_bytes: int = Field(1_000_000, ge=1_000, alias=_env("MAX_BODY_BYTES"))
    """Largest request body the API reads; a larger one is refused with 413."""

    max_input_chars: int = Field(400_000, ge=1, alias=_env("MAX_INPUT_CHARS"))
    """Most characters of text in one input or injected message."""

    files_dir: Path | None = Field(None, alias=_env("FILES_DIR"))
    """Where the bytes of images are kept; unset: `files` in the data directory. API and workers on
    several machines need a shared volume here."""

    max_file_bytes: int = Field(10_000_000, ge=1_000, alias=_env("MAX_FILE_BYTES"))
    """Largest image; a larger one is refused."""

    max_images: int = Field(10, ge=0, alias=_env("MAX_IMAGES"))
    """Most images in one input."""

    llm_base_url: str = Field("https://api.openai.com/v1", alias="LLM_BASE_URL")
    """Base URL of the OpenAI-compatible provider."""

    llm_api_key: SecretStr | None = Field(None, alias="LLM_API_KEY")
    """Key for the provider; `OPENAI_API_KEY` works too."""

    llm_model: str | None = Field(None, alias="LLM_MODEL")
    """Name of the main model; unset: `turnmill up` starts the demo model."""

    llm_context_size: int = Field(128_000, ge=1_000, alias="LLM_CONTEXT_SIZE")
    """Tokens the window of the main model holds, and of all but the fast one."""

    llm_max_output_tokens: int = Field(64_000, ge=1, alias="LLM_MAX_OUTPUT_TOKENS")
    """Tokens reserved for the answer, likewise."""

    llm_tool_call: bool = Field(default=True, alias="LLM_TOOL_CALL")
    """Whether models can call tools; one that cannot is asked in JSON mode."""

    llm_json_mode: bool = Field(default=True, alias="LLM_JSON_MODE")
    """Whether models know `response_format`, which JSON mode sets."""

    llm_fast_model: str | None = Field(None, alias="LLM_FAST_MODEL")
    """Name of the fast model, which writes summaries; unset: the main model does."""

    llm_fast_context_size: int = Field(128_000, ge=1_000, alias="LLM_FAST_CONTEXT_SIZE")
    """Tokens the fast model's window holds."""

    llm_fast_max_output_tokens: int = Field(64_000, ge=1, alias="LLM_FAST_MAX_OUTPUT_TOKENS")
    """Tokens reserved for the fast model's answer."""

    llm_reasoning_model: str | None = Field(None, alias="LLM_REASONING_MODEL")
    """Name of the model for turns that ask for `reasoning`; unset: the main model."""

    llm_fallback_model: str | None = Field(None, alias="LLM_FALLBACK_MODEL")
    """Name of the model that is called while another cannot be, if its row names no other."""

    llm_compaction_timeout_s: Seconds = Field(60.0, alias="LLM_COMPACTION_TIMEOUT_S")
    """Time to wait for a summary; without one, the oldest messages are left out."""

    llm_connect_timeout_s: Seconds = Field(10.0, alias="LLM_CONNECT_TIMEOUT_S")
    """Time to connect to the provider."""

    llm_first_byte_timeout_s: Seconds = Field(120.0, alias="LLM_FIRST_BYTE_TIMEOUT_S")
    """Time from a request to the first byte of the model's answer."""

    llm_chunk_timeout_s: Seconds = Field(60.0, alias="LLM_CHUNK_TIMEOUT_S")
    """Longest silence of the provider in the middle of an answer."""

    llm_call_timeout_s: Seconds = Field(600.0, alias="LLM_CALL_TIMEOUT_S")
    """Time from a request to the end of the model's answer."""

    llm_max_retries: int = Field(3, ge=0, le=20, alias="LLM_MAX_RETRIES")
    """How often a call is made again that failed before its answer began."""

    llm_retry_base_s: Seconds = Field(0.5, alias="LLM_RETRY_BASE_S")
    """Longest pause before the first retry; it doubles with each, and is a random part of that."""

    llm_retry_cap_s: Seconds = Field(60.0, alias="LLM_RETRY_CAP_S")
    """Longest pause before a retry. A provider that asks for a longer one is not asked again."""

    llm_max_in_flight: int | None = Field(None, ge=1, le=MAX_COUNT, alias="LLM_MAX_IN_FLIGHT")
    """Calls that all workers together make at once to each model whose row does not say."""

    llm_requests_per_minute: int | None = Field(
        None, ge=1, le=MAX_COUNT, alias="LLM_REQUESTS_PER_MINUTE"
    )
    """Calls in any 60 seconds, likewise."""

    llm_tokens_per_minute: int | None = Field(
        None, ge=1, le=MAX_COUNT, alias="LLM_TOKENS_PER_MINUTE"
    )
    """Tokens of requests and answers in any 60 seconds, likewise."""

    llm_queue_timeout_s: Seconds = Field(30.0, alias="LLM_QUEUE_TIMEOUT_S")
    """Wait for a model's limits after which a turn is parked, so that its slot is free."""

    react_max_iterations: int = Field(50, ge=1, alias="REACT_MAX_ITERATIONS")
    """Model calls with tools in one turn before it answers from what it has."""

    react_self_reflection_interval: int = Field(6, ge=0, alias="REACT_SELF_REFLECTION_INTERVAL")
    """Tool calls after which the model is asked to look back; 0: never."""

    react_cycle_detection_threshold: int = Field(3, ge=0, alias="REACT_CYCLE_DETECTION_THRESHOLD")
    """Identical tool calls after which the model is warned; 0: never."""

    react_completion_check_min_tools: int = Field(3, ge=0, alias="REACT_COMPLETION_CHECK_MIN_TOOLS")
    """Tool calls after which the first answer is checked once against the request; 0: never."""

    react_tool_selection_threshold: int = Field(12, ge=0, alias="REACT_TOOL_SELECTION_THRESHOLD")
    """Tools beyond which those that a turn probably needs are picked before its loop; 0: never."""

    react_synthesis: Literal["auto", "always", "never"] = Field("auto", alias="REACT_SYNTHESIS")
    """Whether the answer is written by a call of its own: `auto` does so after tools were used."""

    @field_validator("database_url", "redis_url", "events_redis_url", "llm_base_url")
    @classmethod
    def _must_be_url(cls, value: str | None) -> str | None:
        if value is not None and not urlsplit(value).scheme:
            raise ValueError("must be a URL such as scheme://host/path")
        return value

    @field_validator("tool_http_allow")
    @classmethod
    def _must_be_networks(cls, value: str) -> str:
        _parse_networks(value)
        return value

    @model_validator(mode="after")
    def _schemes_are_known(self) -> Self:
        if self.database_url and _scheme(self.database_url) not in DATABASE_SCHEMES:
            raise ValueError(f"{_env('DATABASE_URL')} must start with postgresql:// or sqlite:///")
        for name, url in (
            ("REDIS_URL", self.redis_url),
            ("EVENTS_REDIS_URL", self.events_redis_url),
        ):
            if url and urlsplit(url).scheme not in REDIS_SCHEMES:
                raise ValueError(f"{_env(name)} must start with redis:// or rediss://")
        return self

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read and check the environment.

        environment: used instead of the process's own, for tests.
        Raises ConfigurationError with one line per wrong variable.
        """
        variables = dict(os.environ if environment is None else environment)
        if not variables.get("LLM_API_KEY") and variables.get("OPENAI_API_KEY"):
            variables["LLM_API_KEY"] = variables["OPENAI_API_KEY"]
        given = {
            alias: variables[alias]
            for alias in cls.variable_names()
            if variables.get(alias, "") != ""
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ConfigurationError(explain_all(error)) from error

    @classmethod
    def variable_names(cls) -> frozenset[str]:
        """Return the names of all environment variables that are read."""
        return frozenset(field.alias for field in cls.model_fields.values() if field.alias)

    @property
    def sync_database_url(self) -> str:
        """URL for SQLAlchemy, with the driver named."""
        if self.database_url is None:
            return f"sqlite:///{self.data_dir.absolute() / 'turnmill.sqlite3'}"
        scheme, rest = self.database_url.split("://", 1)
        if scheme.partition("+")[0] in ("postgres", "postgresql"):
            return f"postgresql+psycopg://{rest}"
        return self.database_url

    @property
    def tool_http_networks(self) -> tuple[Network, ...]:
        """Networks that `http_get` may reach although they are not public."""
        return _parse_networks(self.tool_http_allow)

    @property
    def files_path(self) -> Path:
        """Directory of the files' bytes."""
        return self.files_dir or self.data_dir / "files"

    @property
    def broker_url(self) -> str:
        """URL of the Redis that carries doorbells. Raises ConfigurationError if unset."""
        if self.redis_url is None:
            raise ConfigurationError(
                f"{_env('REDIS_URL')} is not set: give the URL of a Redis server, or use"
                " `turnmill up`, which starts one",
            )
        return self.redis_url

    @property
    def events_url(self) -> str:
        """URL of the Redis that carries events, control messages and wake-ups."""
        return self.events_redis_url or self.broker_url


def unknown_variables(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the `TURNMILL_` variables that no setting reads, sorted."""
    names = os.environ if environment is None else environment
    known = Settings.variable_names()
    return sorted(name for name in names if name.startswith(PREFIX) and name not in known)


def split_names(text: str) -> list[str]:
    """Return what stands between the commas of a setting."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _parse_networks(text: str) -> tuple[Network, ...]:
    return tuple(ip_network(name) for name in split_names(text))


def _scheme(url: str) -> str:
    return urlsplit(url).scheme.partition("+")[0]
