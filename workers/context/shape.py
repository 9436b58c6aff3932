"""Token weights by kinds of characters: what a tokenizer makes of a text before it is known.

Digits, punctuation and line breaks cost several times what letters do, and scripts differ more
than models do. The weights are means over four public tokenizers and the conversations that
`make eval-context` measures; what is left to learn about a model is one factor for text in
ASCII, one for all other, and one for what its provider makes of tool schemas
(`workers.context.calibration`).
"""

from dataclasses import dataclass

# Tokens per character.
LETTER = 0.2  # and spaces
DENSE = 0.62  # digits and punctuation
LINE_BREAK = 1.0
ACCENTED = 1.6
CYRILLIC_OR_GREEK = 0.4
CHINESE_OR_JAPANESE = 0.85
OTHER = 1.4

# Characters are told apart by the first byte of their UTF-8 form, in passes of C.
_DENSE = bytes(code for code in range(33, 127) if not chr(code).isalpha())
_ACCENTED = bytes(range(0xC2, 0xCC))
_CYRILLIC_OR_GREEK = bytes(range(0xCC, 0xD7))
_CHINESE_OR_JAPANESE = bytes(range(0xE3, 0xEA))
_OTHER = bytes([*range(0xD7, 0xE3), *range(0xEA, 0xF5)])


@dataclass(frozen=True, slots=True)
class Shape:
    """Weights of a text in tokens, as they stand for a model that nothing is known of."""

    ascii: float = 0.0
    other: float = 0.0
    # Of tool schemas, as the JSON that is sent: some providers show a model half of it.
    tools: float = 0.0
    # Tokens that do not depend on the model, such as those of images.
    fixed: float = 0.0

    def __add__(self, more: "Shape") -> "Shape":
        return Shape(
            self.ascii + more.ascii,
            self.other + more.other,
            self.tools + more.tools,
            self.fixed + more.fixed,
        )


def shape_of(text: str) -> Shape:
    """Return the shape of a text. A lone surrogate counts as the mark that replaces it."""
    encoded = text.encode("utf-8", "replace")
    dense, line_breaks = _count(encoded, _DENSE), encoded.count(b"\n")
    if len(encoded) == len(text):
        return Shape(_ascii(len(encoded), dense, line_breaks))
    accented = _count(encoded, _ACCENTED)
    cyrillic = _count(encoded, _CYRILLIC_OR_GREEK)
    chinese = _count(encoded, _CHINESE_OR_JAPANESE)
    rest = _count(encoded, _OTHER)
    return Shape(
        _ascii(len(text) - accented - cyrillic - chinese - rest, dense, line_breaks),
        ACCENTED * accented
        + CYRILLIC_OR_GREEK * cyrillic
        + CHINESE_OR_JAPANESE * chinese
        + OTHER * rest,
    )


def _count(encoded: bytes, kinds: bytes) -> int:
    return len(encoded) - len(encoded.translate(None, kinds))


def _ascii(characters: int, dense: int, line_breaks: int) -> float:
    letters = characters - dense - line_breaks
    return LETTER * letters + DENSE * dense + LINE_BREAK * line_breaks
