"""Which model `turnmill up` works with: the one that is configured, or the demo model."""

from shared.errors import ConfigurationError
from shared.settings import Settings

DEMO_MODEL = "turnmill-demo"
DEMO_KEY = "demo"

# What is of no use without LLM_MODEL, by field.
COMPANIONS = {
    "llm_api_key": "LLM_API_KEY (or OPENAI_API_KEY)",
    "llm_base_url": "LLM_BASE_URL",
}


def needs_demo(settings: Settings) -> bool:
    """Tell whether no model is configured at all.

    Raises ConfigurationError if one is configured by half.
    """
    if settings.llm_model is not None:
        return False
    given = [name for field, name in COMPANIONS.items() if field in settings.model_fields_set]
    if given:
        raise ConfigurationError(
            f"LLM_MODEL is not set, but {' and '.join(given)}: set LLM_MODEL to the name of the"
            " model to use, or unset the rest to use the demo model",
        )
    return True
