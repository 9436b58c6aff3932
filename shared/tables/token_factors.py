"""Table `token_factors`: what providers taught of their models, shared by all workers."""

from datetime import datetime

from sqlalchemy import Text
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, Json, UtcTime


class TokenFactors(Base):
    """What is known of one model at one provider."""

    __tablename__ = "token_factors"

    model: Mapped[str] = mapped_column(Text, primary_key=True)
    base_url: Mapped[str] = mapped_column(Text, primary_key=True)
    # The newest samples, oldest first: `[ascii, other, tools, tokens]`.
    samples: Mapped[list[list[float]]] = mapped_column(Json)
    # The window as the provider stated it when it refused a request; NULL if it never did.
    context_size: Mapped[int | None]
    # Parameters of requests that the provider does not know.
    refused: Mapped[list[str]] = mapped_column(Json)
    updated_at: Mapped[datetime] = mapped_column(UtcTime)
