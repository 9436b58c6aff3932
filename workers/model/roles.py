"""Which model fills a role: a configured one, then the environment's, then the defaults."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import get_args

from shared.errors import ConfigurationError
from shared.model_spec import Role
from shared.repositories.model_configs import ModelConfig
from shared.settings import Settings
from workers.model.limits import Limits
from workers.model.values import Abilities, ModelTarget

ROLES: tuple[Role, ...] = get_args(Role)


class Roles:
    """The models that can be called.

    configs: all that are configured; what they leave out comes from the settings.
    environment: holds the keys that configurations name; the process's own if not given.
    A model's limits are its own: what they leave out never comes from another model's. Resolving
    raises ConfigurationError if a key, the fallback's too, is not set.
    """

    def __init__(
        self,
        settings: Settings,
        configs: Iterable[ModelConfig],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._by_name = {config.name: config for config in configs}
        self._by_role = {config.role: config for config in self._by_name.values() if config.role}
        self._environment = os.environ if environment is None else environment

    def main(self, asked_for: str | None = None) -> ModelTarget:
        """Return the model for a turn.

        asked_for: a model's name, or a role's. Raises ConfigurationError if no model is known.
        """
        if asked_for in self._by_name or asked_for not in (None, *ROLES):
            return self._named(asked_for or "")
        name = self._name_of("main")
        if not name:
            raise ConfigurationError(
                "No model is set: give the name of one in LLM_MODEL, or configure a main model",
            )
        main = self._named(name)
        if asked_for == "fast":
            return self.fast(main)
        return self.reasoning(main) if asked_for == "reasoning" else main

    def fast(self, main: ModelTarget) -> ModelTarget:
        """Return the fast model, which also writes summaries; the main one if there is none."""
        settings = self._settings
        name = self._name_of("fast")
        if not name:
            return main
        return self._named(
            name,
            context_size=settings.llm_fast_context_size,
            max_output_tokens=settings.llm_fast_max_output_tokens,
        )

    def reasoning(self, main: ModelTarget) -> ModelTarget:
        """Return the model for what is hard; the main one if there is none."""
        name = self._name_of("reasoning")
        return self._named(name) if name else main

    def _name_of(self, role: Role) -> str | None:
        """Return the name of the model that fills a role itself."""
        defaults = {
            "main": self._settings.llm_model,
            "fast": self._settings.llm_fast_model,
            "reasoning": self._settings.llm_reasoning_model,
        }
        config = self._by_role.get(role)
        return config.name if config else defaults[role]

    def _named(
        self,
        name: str,
        *,
        context_size: int | None = None,
        max_output_tokens: int | None = None,
    ) -> ModelTarget:
        """Return a model with its fallback; the limits are for what its configuration leaves out.

        A fallback has none of its own.
        """
        config = self._by_name.get(name) or ModelConfig(name=name)
        target = self._target(
            config,
            context_size=context_size or self._settings.llm_context_size,
            max_output_tokens=max_output_tokens or self._settings.llm_max_output_tokens,
        )
        fallback = self._fallback_of(config)
        if fallback in (None, name):
            return target
        other = self._by_name.get(fallback) or ModelConfig(name=fallback)
        return replace(
            target,
            fallback=self._target(
                other,
                context_size=self._settings.llm_context_size,
                max_output_tokens=self._settings.llm_max_output_tokens,
            ),
        )

    def _fallback_of(self, config: ModelConfig) -> str | None:
        """Return the name of a model's fallback, which may be given as a role."""
        name = config.fallback or self._settings.llm_fallback_model
        role = next((role for role in ROLES if role == name), None)
        if role is None or name in self._by_name:
            return name
        return self._name_of(role) or self._name_of("main")

    def _target(
        self,
        config: ModelConfig,
        *,
        context_size: int,
        max_output_tokens: int,
    ) -> ModelTarget:
        settings = self._settings
        return ModelTarget(
            name=config.name,
            base_url=config.base_url or settings.llm_base_url,
            api_key=self._api_key(config),
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

    def _api_key(self, config: ModelConfig) -> str:
        """Return the key; "" for a server that wants none."""
        settings = self._settings
        if config.api_key_env:
            # Files that keys are kept in tend to end with a newline.
            key = self._environment.get(config.api_key_env, "").strip()
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


def _first(configured: bool | None, default: bool) -> bool:  # noqa: FBT001 - two of a kind
    return default if configured is None else configured
