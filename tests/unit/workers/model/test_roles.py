import pytest

from shared.errors import ConfigurationError
from shared.repositories.model_configs import ModelConfig
from shared.settings import Settings
from workers.model.roles import Roles
from workers.model.values import ModelTarget

ENVIRONMENT = {
    "LLM_BASE_URL": "http://models.test/v1",
    "LLM_API_KEY": "key-1\n",
    "LLM_MODEL": "model-1",
    "LLM_CONTEXT_SIZE": "9000",
    "LLM_MAX_OUTPUT_TOKENS": "1000",
}
SETTINGS = Settings.from_environment(ENVIRONMENT)


def roles(*configs: ModelConfig, settings: Settings = SETTINGS) -> Roles:
    return Roles(settings, configs, environment={"KEY_2": "key-2\n"})


def resolve(config: ModelConfig | None, name: str | None = None) -> ModelTarget:
    if config is None:
        return roles().main(name)
    return roles(config).main(config.name)


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
    assert roles(settings=settings).main().api_key == ""


def test_no_model_is_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="LLM_MODEL"):
        roles(settings=Settings.from_environment({})).main()


def test_key_that_is_configured_but_not_set_is_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="KEY_9 is not set"):
        resolve(ModelConfig(name="m", api_key_env="KEY_9"))


def test_key_is_not_shown() -> None:
    assert "key-1" not in repr(resolve(None))


def test_roles_of_the_environment() -> None:
    settings = Settings.from_environment(
        ENVIRONMENT
        | {
            "LLM_FAST_MODEL": "fast-1",
            "LLM_REASONING_MODEL": "deep-1",
            "LLM_FAST_CONTEXT_SIZE": "5000",
            "LLM_FAST_MAX_OUTPUT_TOKENS": "500",
        }
    )
    found = roles(settings=settings)
    main = found.main()
    sizes = {
        target.name: (target.context_size, target.max_output_tokens)
        for target in (main, found.fast(main), found.reasoning(main))
    }
    assert sizes == {"model-1": (9000, 1000), "fast-1": (5000, 500), "deep-1": (9000, 1000)}


def test_roles_of_rows_come_first_and_main_stands_in() -> None:
    found = roles(
        ModelConfig(name="m", role="main"), ModelConfig(name="r", role="reasoning", context_size=7)
    )
    main = found.main()
    assert (main.name, found.fast(main), found.reasoning(main).context_size) == ("m", main, 7)
    assert roles().reasoning(main) is main


@pytest.mark.parametrize(
    ("asked_for", "name"),
    [(None, "m"), ("main", "m"), ("fast", "f"), ("reasoning", "m"), ("r", "r"), ("new", "new")],
)
def test_turn_asks_for_a_model_or_a_role(asked_for: str | None, name: str) -> None:
    found = roles(
        ModelConfig(name="m", role="main"),
        ModelConfig(name="f", role="fast"),
        ModelConfig(name="r"),
    )
    assert found.main(asked_for).name == name


def test_model_that_is_named_like_a_role_is_that_model() -> None:
    found = roles(ModelConfig(name="fast"), ModelConfig(name="f", role="fast"))
    assert found.main("fast").name == "fast"


def test_fallback_has_limits_of_its_own_and_no_fallback() -> None:
    settings = Settings.from_environment(ENVIRONMENT | {"LLM_FALLBACK_MODEL": "spare"})
    found = roles(
        ModelConfig(name="m", role="main", context_size=20_000, fallback="other"),
        ModelConfig(name="other", context_size=4_000, base_url="http://other.test/v1"),
        settings=settings,
    )
    main = found.main()
    assert main.fallback is not None
    assert (main.fallback.name, main.fallback.context_size) == ("other", 4_000)
    assert (main.fallback.api_key, main.fallback.fallback) == ("", None)
    spare = found.main("plain").fallback
    assert spare is not None
    assert (spare.name, spare.context_size) == ("spare", 9_000)
    assert found.main("spare").fallback is None


@pytest.mark.parametrize(
    ("fallback", "name"), [("main", "m"), ("fast", "f"), ("reasoning", "m"), ("spare", "spare")]
)
def test_fallback_may_be_a_role(fallback: str, name: str) -> None:
    found = roles(
        ModelConfig(name="m", role="main"),
        ModelConfig(name="f", role="fast"),
        ModelConfig(name="x", fallback=fallback),
    )
    target = found.main("x").fallback
    assert target is not None
    assert target.name == name
