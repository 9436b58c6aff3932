"""Settings: defaults, the environment, and sentences that name the variable."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from shared.errors import ConfigurationError
from shared.settings import Settings, unknown_variables

OVERRIDES = {
    "TURNMILL_DATA_DIR": ("/srv/data", "data_dir", Path("/srv/data")),
    "TURNMILL_PORT": ("9000", "port", 9000),
    "TURNMILL_LEASE_S": ("3.5", "lease_s", 3.5),
    "TURNMILL_WORKER_SLOTS": ("20", "worker_slots", 20),
    "TURNMILL_LOG_LEVEL": ("DEBUG", "log_level", "DEBUG"),
    "LLM_MODEL": ("some-model", "llm_model", "some-model"),
    "LLM_CONTEXT_SIZE": ("8000", "llm_context_size", 8000),
    "REACT_MAX_ITERATIONS": ("7", "react_max_iterations", 7),
}
WRONG = {
    "TURNMILL_PORT": "http",
    "TURNMILL_FLOWER_PORT": "70000",
    "TURNMILL_LEASE_S": "2",
    "TURNMILL_SWEEP_S": "0",
    "TURNMILL_WORKER_SLOTS": "0",
    "TURNMILL_MAX_CRASHES": "many",
    "TURNMILL_LOG_LEVEL": "LOUD",
    "TURNMILL_DATABASE_URL": "mysql://localhost/db",
    "TURNMILL_REDIS_URL": "localhost:6379",
    "TURNMILL_EVENTS_REDIS_URL": "http://localhost",
    "TURNMILL_TOOL_HTTP_ALLOW": "10.0.0.1/8",
    "TURNMILL_TOOL_HTTP_MAX_BYTES": "0",
    "TURNMILL_MCP_CONNECT_TIMEOUT_S": "never",
    "LLM_BASE_URL": "localhost",
    "LLM_CONTEXT_SIZE": "1",
}


def read(**variables: str) -> Settings:
    return Settings.from_environment(variables)


def test_empty_environment_is_enough() -> None:
    settings = read()

    assert settings.data_dir == Path(".turnmill")
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert settings.lease_s == 15
    assert settings.max_crashes == 5
    assert settings.llm_context_size == 128_000
    assert settings.llm_api_key is None


@pytest.mark.parametrize("name", OVERRIDES)
def test_variable_overrides_default(name: str) -> None:
    text, field, value = OVERRIDES[name]

    assert getattr(read(**{name: text}), field) == value != getattr(read(), field)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_value_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        read(**{name: WRONG[name]})


def test_every_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(TURNMILL_PORT="http", TURNMILL_LEASE_S="soon")

    assert "TURNMILL_PORT" in caught.value.message
    assert "TURNMILL_LEASE_S" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", sorted(Settings.variable_names()))
def test_empty_variable_counts_as_unset(name: str) -> None:
    assert read(**{name: ""}) == read()


def test_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNMILL_PORT", "9001")

    assert Settings.from_environment().port == 9001


def test_openai_key_is_used_when_there_is_no_other() -> None:
    alone = read(OPENAI_API_KEY="one").llm_api_key
    both = read(OPENAI_API_KEY="one", LLM_API_KEY="two").llm_api_key

    assert alone is not None
    assert both is not None
    assert (alone.get_secret_value(), both.get_secret_value()) == ("one", "two")


def test_key_is_not_shown() -> None:
    settings = read(LLM_API_KEY="hush-hush", TURNMILL_FLOWER_BASIC_AUTH="user:hush-hush")

    assert "hush-hush" not in repr(settings)
    assert "hush-hush" not in settings.model_dump_json()


def test_settings_cannot_be_changed() -> None:
    settings = read()

    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


def test_unknown_variables_are_reported() -> None:
    environment = {
        "TURNMILL_PROT": "1",
        "TURNMILL_PORT": "1",
        "TURNMILL_A": "",
        "PATH": "/bin",
        "LLM_OTHER": "x",
    }

    assert unknown_variables(environment) == ["TURNMILL_A", "TURNMILL_PROT"]


def test_unknown_variables_are_no_error() -> None:
    assert read(TURNMILL_PROT="1") == read()


def test_every_setting_has_a_variable_with_one_of_the_prefixes() -> None:
    assert len(Settings.variable_names()) == len(Settings.model_fields)
    for name in Settings.variable_names():
        assert re.fullmatch(r"(TURNMILL|LLM|REACT)_[A-Z_]+", name)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgres_url_gets_the_driver(scheme: str) -> None:
    settings = read(TURNMILL_DATABASE_URL=f"{scheme}://user@host:5432/db")

    assert settings.sync_database_url == "postgresql+psycopg://user@host:5432/db"


def test_database_is_sqlite_in_the_data_directory_by_default() -> None:
    settings = read(TURNMILL_DATA_DIR="/srv/data")

    assert settings.sync_database_url == "sqlite:////srv/data/turnmill.sqlite3"


def test_files_lie_in_the_data_directory_unless_they_have_one_of_their_own() -> None:
    assert read(TURNMILL_DATA_DIR="/srv/data").files_path == Path("/srv/data/files")
    assert read(TURNMILL_FILES_DIR="/mnt/files").files_path == Path("/mnt/files")


def test_redis_is_named_when_it_is_missing() -> None:
    with pytest.raises(ConfigurationError, match=r"TURNMILL_REDIS_URL.*turnmill up"):
        _ = read().broker_url


def test_events_live_on_the_broker_unless_they_have_a_redis_of_their_own() -> None:
    one = read(TURNMILL_REDIS_URL="redis://a")
    two = read(TURNMILL_REDIS_URL="redis://a", TURNMILL_EVENTS_REDIS_URL="rediss://b")

    assert (one.broker_url, one.events_url) == ("redis://a", "redis://a")
    assert (two.broker_url, two.events_url) == ("redis://a", "rediss://b")
