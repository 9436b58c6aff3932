"""What an administrator may say of a model, over HTTP or on the command line."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from shared.text import check_text

MAX_TOKENS = 2**31 - 1

Role = Literal["main", "fast", "reasoning"]


def _check_name(name: str) -> str:
    if not name.strip():
        raise PydanticCustomError("blank_name", "must not be blank: give the model's name")
    if not name.isprintable():
        raise PydanticCustomError("odd_name", "must not hold line breaks or control characters")
    return check_text(name)


# As the provider knows the model.
ModelName = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_name)]
MODEL_NAME: TypeAdapter[str] = TypeAdapter(ModelName)


def _check_base_url(url: str) -> str:
    try:
        parts = urlsplit(check_text(url))
    except ValueError:
        raise _not_a_url() from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _not_a_url()
    if parts.username or parts.password:
        raise PydanticCustomError(
            "url_with_key",
            "must not hold a user or password: name the key's variable in api_key_env",
        )
    return url


def _not_a_url() -> PydanticCustomError:
    return PydanticCustomError("url", "must be a URL such as https://host/v1")


class ModelSpec(BaseModel):
    """A model's role and limits. What is left out comes from the workers' environment."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    role: Role | None = None
    base_url: Annotated[str, Field(max_length=2_000), AfterValidator(_check_base_url)] | None = None
    # Name of the workers' environment variable that holds the key.
    api_key_env: (
        Annotated[str, Field(max_length=100, pattern=r"^(LLM|OPENAI)_[A-Z0-9_]*KEY$")] | None
    ) = None
    # Tokens of prompt and answer together, and of the answer.
    context_size: Annotated[int, Field(ge=1_000, le=MAX_TOKENS)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    # Whether it can call tools (else JSON mode), and knows `response_format`.
    tool_call: bool | None = None
    json_mode: bool | None = None
    # Name of the model that is called while this one cannot be.
    fallback: ModelName | None = None
    # Limits for all workers together: calls at once, and calls and tokens in any 60 seconds.
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    requests_per_minute: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    tokens_per_minute: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None

    @model_validator(mode="after")
    def _check_room_for_the_prompt(self) -> Self:
        if (
            self.context_size is not None
            and self.max_output_tokens is not None
            and self.max_output_tokens >= self.context_size
        ):
            raise PydanticCustomError(
                "no_room",
                "max_output_tokens must be less than context_size: the prompt needs room too",
            )
        return self
