"""Which model fills a role: a configured one, then the environment's, then the defaults."""

import os
from collections.abc import Mapping

from shared.errors import ConfigurationError
from shared.repositories.model_configs import ModelConfig
from shared.settings import Settings
from workers.model.limits import Limits
from workers.model.values import Abilities, ModelTarget


def resolve_target(
    settings: Settings,
    config: ModelConfig | None,
    name: str | None,
    *,
    environment: Mapping[str, str] | None = None,
) -> ModelTarget:
    """Return the model to call.

    config: the configuration of the model asked for, or of the main model if none was; what it
    leaves out comes from the settings.
    name: the model that was asked for.
    environment: holds the keys that configurations name; the process's own if not given.
    Raises ConfigurationError if no model is known, or its key is not set.
    """
    model = config.name if config else name or settings.llm_model
    if not model:
        raise ConfigurationError(
            "No model is set: give the name of one in LLM_MODEL, or configure a main model",
        )
    return _target(
        settings,
        config or ModelConfig(name=model),
        environment,
        context_size=settings.llm_context_size,
        max_output_tokens=settings.llm_max_output_tokens,
    )


def resolve_fast(
    settings: Settings,
    config: ModelConfig | None,
    main: ModelTarget,
    *,
    environment: Mapping[str, str] | None = None,
) -> ModelTarget:
    """Return the fast model, which also writes summaries; the main one if there is none.

    config: the configuration that holds the role.
    Its limits are its own: what they leave out never comes from the main model's.
    Raises ConfigurationError if its key is not set.
    """
    name = config.name if config else settings.llm_fast_model
    if not name:
        return main
    return _target(
        settings,
        config or ModelConfig(name=name),
        environment,
        context_size=settings.llm_fast_context_size,
        max_output_tokens=settings.llm_fast_max_output_tokens,
    )


def _target(
    settings: Settings,
    config: ModelConfig,
    environment: Mapping[str, str] | None,
    *,
    context_size: int,
    max_output_tokens: int,
) -> ModelTarget:
    """Return a model; the limits are for what its configuration leaves out."""
    return ModelTarget(
        name=config.name,
        base_url=config.base_url or settings.llm_base_url,
        api_key=_api_key(settings, config, os.environ if environment is None else environment),
        context_size=config.context_size or context_size,
        max_output_tokens=config.max_output_tokens or max_output_tokens,
        abilities=Abilities(
            tool_call=_first(config.tool_call, settings.llm_tool_call),
            json_mode=_first(config.json_mode, settings.llm_json_mode),
        ),
        limits=Limits(
            max_in_flight=config.max_in_flight or settings.llm_max_in_flight,
            requests_per_minute=config.requests_per_minute or settings.llm_requests_per_minute,
            tokens_per_minute=config.tokens_per_minute or settings.llm_tokens_per_minute,
        ),
    )


def _first(configured: bool | None, default: bool) -> bool:  # noqa: FBT001 - two of a kind
    return default if configured is None else configured


def _api_key(settings: Settings, config: ModelConfig, environment: Mapping[str, str]) -> str:
    """Return the key; "" for a server that wants none."""
    if config.api_key_env:
        # Files that keys are kept in tend to end with a newline.
        key = environment.get(config.api_key_env, "").strip()
        if not key:
            raise ConfigurationError(
                f"{config.api_key_env} is not set in the worker's environment: the key of model"
                f" {config.name} is read from there",
            )
        return key
    # A key goes to no other server than the one it was given for.
    if settings.llm_api_key is None or config.base_url not in (None, settings.llm_base_url):
        return ""
    return settings.llm_api_key.get_secret_value().strip()
