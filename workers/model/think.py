"""Thoughts inside the content: `<think>` blocks before the answer are reasoning, not text."""

OPEN = "<think>"
CLOSE = "</think>"


class ThinkFilter:
    """Tells the blocks at the start of the content from the answer, however it is cut.

    Tags anywhere later are text. White space before and after a block belongs to neither.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._is_inside = False
        self._had_block = False
        # The answer has begun: all that follows is text.
        self.is_past = False

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that are certain now; each may be empty."""
        if self.is_past:
            return "", text
        self._pending += text
        reasoning = ""
        while self._is_inside or self._enter():
            thought, is_closed = self._take_thought()
            reasoning += thought
            if not is_closed:
                return reasoning, ""
        if OPEN.startswith(self._pending.lstrip()):
            return reasoning, ""
        return reasoning, self.settle()

    def settle(self) -> str:
        """Return the text held back: no block can begin any more. Inside one, nothing changes."""
        if self._is_inside:
            return ""
        self.is_past = True
        text, self._pending = self._pending, ""
        return text.lstrip() if self._had_block else text

    def finish(self) -> tuple[str, str]:
        """Return the reasoning and the text held back; a block that was not closed is reasoning."""
        if self._is_inside:
            return self._pending, ""
        return "", self.settle()

    def _enter(self) -> bool:
        stripped = self._pending.lstrip()
        if not stripped.startswith(OPEN):
            return False
        self._pending = stripped.removeprefix(OPEN)
        self._is_inside = self._had_block = True
        return True

    def _take_thought(self) -> tuple[str, bool]:
        thought, close, rest = self._pending.partition(CLOSE)
        if close:
            self._pending = rest
            self._is_inside = False
            return thought, True
        cut = len(thought) - _begun(thought)
        self._pending = thought[cut:]
        return thought[:cut], False


def _begun(text: str) -> int:
    """Return how many characters at the end of the text may begin the closing tag."""
    lengths = range(min(len(CLOSE) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(CLOSE[:length])), 0)
