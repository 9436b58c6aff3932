import pytest

from shared.errors import ConfigurationError
from shared.repositories.model_configs import ModelConfig
from shared.settings import Settings
from workers.model.roles import resolve_target
from workers.model.values import ModelTarget

ENVIRONMENT = {
    "LLM_BASE_URL": "http://models.test/v1",
    "LLM_API_KEY": "key-1\n",
    "LLM_MODEL": "model-1",
    "LLM_CONTEXT_SIZE": "9000",
    "LLM_MAX_OUTPUT_TOKENS": "1000",
}
SETTINGS = Settings.from_environment(ENVIRONMENT)


def resolve(config: ModelConfig | None, name: str | None = None) -> ModelTarget:
    return resolve_target(SETTINGS, config, name, environment={"KEY_2": "key-2\n"})


def test_environment_alone() -> None:
    assert resolve(None) == ModelTarget(
        name="model-1",
        base_url="http://models.test/v1",
        api_key="key-1",
        context_size=9_000,
        max_output_tokens=1_000,
    )


def test_model_asked_for_without_configuration_is_at_the_same_provider() -> None:
    target = resolve(None, "model-9")
    assert (target.name, target.base_url, target.api_key) == (
        "model-9",
        "http://models.test/v1",
        "key-1",
    )


def test_configuration_comes_first() -> None:
    config = ModelConfig(
        name="model-2",
        base_url="http://other.test/v1",
        api_key_env="KEY_2",
        context_size=32_000,
        max_output_tokens=2_000,
    )
    assert resolve(config, "model-2") == ModelTarget(
        name="model-2",
        base_url="http://other.test/v1",
        api_key="key-2",
        context_size=32_000,
        max_output_tokens=2_000,
    )


def test_what_a_configuration_leaves_out_comes_from_the_environment() -> None:
    target = resolve(ModelConfig(name="model-2"))
    assert (target.base_url, target.api_key) == ("http://models.test/v1", "key-1")
    assert (target.context_size, target.max_output_tokens) == (9_000, 1_000)


def test_key_is_not_sent_to_another_server() -> None:
    assert resolve(ModelConfig(name="m", base_url="http://other.test/v1")).api_key == ""
    assert resolve(ModelConfig(name="m", base_url="http://models.test/v1")).api_key == "key-1"


def test_key_may_be_missing() -> None:
    settings = Settings.from_environment({"LLM_MODEL": "local"})
    assert resolve_target(settings, None, None).api_key == ""


def test_no_model_is_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="LLM_MODEL"):
        resolve_target(Settings.from_environment({}), None, None)


def test_key_that_is_configured_but_not_set_is_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="KEY_9 is not set"):
        resolve(ModelConfig(name="m", api_key_env="KEY_9"))


def test_key_is_not_shown() -> None:
    assert "key-1" not in repr(resolve(None))
