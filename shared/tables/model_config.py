"""Table `model_configs`: models and their limits as an administrator set them."""

from datetime import datetime

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, UtcTime


class ModelConfig(Base):
    """One model. What is NULL comes from the environment."""

    __tablename__ = "model_configs"

    # The name the provider knows it by.
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    # main, for the one that is used when a turn names none, or fast, which writes summaries
    role: Mapped[str | None] = mapped_column(String(16), unique=True)
    base_url: Mapped[str | None] = mapped_column(Text)
    # Name of the workers' environment variable that holds the key; never the key.
    api_key_env: Mapped[str | None] = mapped_column(String(100))
    context_size: Mapped[int | None]
    max_output_tokens: Mapped[int | None]
    # Whether tools can be called natively; else JSON mode.
    tool_call: Mapped[bool | None]
    # Whether `response_format` may be json_object.
    json_mode: Mapped[bool | None]
    # Name of the model that is called while this one cannot be.
    fallback: Mapped[str | None] = mapped_column(String(200))
    # Limits for all workers together: calls at once, and calls and tokens in any 60 seconds.
    max_in_flight: Mapped[int | None]
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    updated_at: Mapped[datetime] = mapped_column(UtcTime)
