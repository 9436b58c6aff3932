import shlex

import pytest

from cli.plan import Choices, make_plan
from cli.up import check_redis, describe, hide_secrets
from shared.errors import UnavailableError
from shared.settings import Settings


def describe_with(environment: dict[str, str]) -> str:
    settings = Settings.from_environment(environment)
    choices = Choices(workers=1, with_flower=True)
    return describe(make_plan(settings, choices, environment=environment, directory="/"))


def test_curl_line_can_be_pasted() -> None:
    text = describe_with({"TURNMILL_HOST": "0.0.0.0", "TURNMILL_PORT": "8123"})

    curl = next(line for line in text.splitlines() if line.startswith("  curl"))
    assert shlex.split(curl) == [
        *("curl", "-N", "http://127.0.0.1:8123/v1/turns"),
        *("-H", "Content-Type: application/json", "-H", "Accept: text/event-stream"),
        *("-d", '{"input": "What is 17 * 23?"}'),
    ]


def test_demo_model_is_said_to_be_none() -> None:
    assert "demo model (scripted, not an LLM): set LLM_MODEL" in describe_with({})


def test_no_secret_is_shown() -> None:
    text = describe_with(
        {
            "LLM_MODEL": "m",
            "LLM_API_KEY": "hidden-1",
            "TURNMILL_REDIS_URL": "redis://user:hidden-2@redis.internal:6379/0",
            "TURNMILL_DATABASE_URL": "postgresql://u:hidden-3@db.internal/t?password=hidden-4",
            "TURNMILL_FLOWER_BASIC_AUTH": "user:hidden-5",
        },
    )

    assert "redis://redis.internal:6379/0" in text
    assert "postgresql://db.internal/t" in text
    assert "hidden" not in text


def test_url_without_secrets_stays() -> None:
    assert hide_secrets("redis://[::1]:6379/0") == "redis://[::1]:6379/0"


def test_missing_redis_is_one_sentence_without_its_password() -> None:
    with pytest.raises(UnavailableError) as caught:
        check_redis("redis://:hidden@127.0.0.1:1/0", "TURNMILL_REDIS_URL")

    assert "redis://127.0.0.1:1/0 cannot be used" in caught.value.message
    assert "check TURNMILL_REDIS_URL" in caught.value.message
    assert "hidden" not in caught.value.message


def test_no_redis_of_the_users_own_needs_no_check() -> None:
    check_redis(None, "TURNMILL_REDIS_URL")
