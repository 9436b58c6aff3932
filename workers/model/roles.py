"""Which model a turn uses: a configured one, then the environment's, then the defaults."""

import os
from collections.abc import Mapping

from shared.errors import ConfigurationError
from shared.repositories.model_configs import ModelConfig
from shared.settings import Settings
from workers.model.values import ModelTarget


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
    row = config or ModelConfig(name=model)
    return ModelTarget(
        name=model,
        base_url=row.base_url or settings.llm_base_url,
        api_key=_api_key(settings, row, os.environ if environment is None else environment),
        context_size=row.context_size or settings.llm_context_size,
        max_output_tokens=row.max_output_tokens or settings.llm_max_output_tokens,
    )


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
