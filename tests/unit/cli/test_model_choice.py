import pytest

from cli.model_choice import needs_demo
from shared.errors import ConfigurationError
from shared.settings import Settings


def test_demo_only_if_nothing_is_configured() -> None:
    assert needs_demo(Settings.from_environment({}))
    assert needs_demo(Settings.from_environment({"LLM_MODEL": "", "LLM_API_KEY": ""}))
    assert not needs_demo(Settings.from_environment({"LLM_MODEL": "m"}))


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"LLM_API_KEY": "secret"}, "but LLM_API_KEY (or OPENAI_API_KEY):"),
        ({"OPENAI_API_KEY": "secret"}, "but LLM_API_KEY (or OPENAI_API_KEY):"),
        ({"LLM_BASE_URL": "http://127.0.0.1:1/v1"}, "but LLM_BASE_URL:"),
        (
            {"LLM_API_KEY": "secret", "LLM_BASE_URL": "http://127.0.0.1:1/v1"},
            "but LLM_API_KEY (or OPENAI_API_KEY) and LLM_BASE_URL:",
        ),
    ],
)
def test_model_configured_by_half_is_refused(environment: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        needs_demo(Settings.from_environment(environment))

    assert named in caught.value.message
    assert "set LLM_MODEL" in caught.value.message
    assert "secret" not in caught.value.message
