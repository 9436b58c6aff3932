"""Characters cut in two: servers that slice UTF-16 send the halves of a character separately."""


def join_surrogates(text: str) -> str:
    """Make characters of the pairs of halves in a text; a half without its other is replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SurrogateJoiner:
    """Holds a half character back until the other half arrives."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return the text without a half at its end. The text is not empty."""
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return join_surrogates(text)
