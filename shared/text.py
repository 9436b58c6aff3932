"""Text from outside, held to what both stores and the event streams can keep."""

from pydantic_core import PydanticCustomError


def check_text(text: str) -> str:
    """Refuse NUL characters and lone surrogates, in text that a client sends."""
    if "\0" in text:
        raise PydanticCustomError(
            "nul_character",
            "must not contain NUL characters (U+0000): remove them",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError(
            "lone_surrogate",
            "must be valid Unicode: remove lone surrogates (U+D800 to U+DFFF)",
        ) from None
    return text


def storable(text: str) -> str:
    """Replace NUL characters and lone surrogates, in text of models and tools."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")
