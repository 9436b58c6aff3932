"""What clients send. Unknown fields and wrong types are refused."""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)

from api.images import check_image_url
from api.texts import Content, Metadata, Name
from shared.text import check_text

MAX_TOOLS = 128
MAX_PARTS = 256

# Tags never show: fields are named as the client sent them.
TEXT_TAG, PARTS_TAG = "<text>", "<parts>"
PART_TAGS = {kind: f"<{kind} part>" for kind in ("text", "image_url", "image_file")}
TAGS = frozenset({TEXT_TAG, PARTS_TAG, *PART_TAGS.values()})


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextPart(_Body):
    """A piece of an input."""

    type: Literal["text"]
    text: Content


class ImageUrl(_Body):
    """An image by its data URL."""

    url: Annotated[str, AfterValidator(check_image_url)]


class ImageUrlPart(_Body):
    """An image that is sent along."""

    type: Literal["image_url"]
    image_url: ImageUrl


class ImageFile(_Body):
    """An image by its id."""

    file_id: Annotated[str, Field(max_length=40), AfterValidator(check_text)]


class ImageFilePart(_Body):
    """An image that was uploaded before."""

    type: Literal["image_file"]
    image_file: ImageFile


ImagePart = ImageUrlPart | ImageFilePart


def _tag_part(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return PART_TAGS.get(kind) if isinstance(kind, str) else None


InputPart = Annotated[
    Annotated[TextPart, Tag(PART_TAGS["text"])]
    | Annotated[ImageUrlPart, Tag(PART_TAGS["image_url"])]
    | Annotated[ImageFilePart, Tag(PART_TAGS["image_file"])],
    Discriminator(
        _tag_part,
        custom_error_type="part_type",
        custom_error_message="must be a part with the type 'text', 'image_url' or 'image_file'",
    ),
]


def _tag_input(value: object) -> str | None:
    if isinstance(value, str):
        return TEXT_TAG
    return PARTS_TAG if isinstance(value, list) else None


TurnInput = Annotated[
    Annotated[Content, Tag(TEXT_TAG)]
    | Annotated[list[InputPart], Field(min_length=1, max_length=MAX_PARTS), Tag(PARTS_TAG)],
    Discriminator(
        _tag_input,
        custom_error_type="input_type",
        custom_error_message="must be a text, or a list of parts like"
        ' {"type": "text", "text": "…"}',
    ),
]


class PostTurn(_Body):
    """A turn to be worked on."""

    input: TurnInput
    conversation_id: Annotated[str, Field(max_length=40), AfterValidator(check_text)] | None = None
    mode: Literal["react"] = "react"
    instructions: Content | None = None
    if_busy: Literal["queue", "reject"] = "queue"
    tools: Annotated[list[Name], Field(max_length=MAX_TOOLS)] | None = None
    model: Name | None = None
    metadata: Metadata = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The input as one text; parts are joined by a blank line, images are left out."""
        if isinstance(self.input, str):
            return self.input
        return "\n\n".join(part.text for part in self.input if isinstance(part, TextPart))

    @property
    def images(self) -> list[ImagePart]:
        """The images of the input, in order."""
        if isinstance(self.input, str):
            return []
        return [part for part in self.input if not isinstance(part, TextPart)]


class PostInjection(_Body):
    """A message for an open turn."""

    content: Content


class PostApproval(_Body):
    """What a person decides about a tool call."""

    approve: bool
    # Of a refusal, the model is told.
    reason: Annotated[str, Field(max_length=1_000), AfterValidator(check_text)] | None = None


class PostCancel(_Body):
    """A wish to end a turn."""

    reason: Annotated[str, Field(max_length=1_000), AfterValidator(check_text)] | None = None
