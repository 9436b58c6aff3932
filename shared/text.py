"""Text that comes from models and tools, made fit to be stored and sent."""


def storable(text: str) -> str:
    """Replace what neither Postgres nor UTF-8 can hold: NUL characters and lone surrogates."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")
