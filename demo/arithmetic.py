"""Finding a calculation in a text of any language."""

import ast
import re
import unicodedata

# Signs that stand for operators, and words that do so between numbers.
SIGNS = str.maketrans({"×": "*", "⋅": "*", "·": "*", "÷": "/", "−": "-", "–": "-", ":": "/"})  # noqa: RUF001
WORDS = {
    "+": "plus|más|mas|плюс|たす|足す|加上|加|더하기|زائد",
    "-": "minus|moins|menos|минус|ひく|引く|减去|减|減|빼기|ناقص",
    "*": "times|multiplied by|mal|fois|por|умножить на|на|かける|掛ける|乘以|乘|곱하기|ضرب|في|x|х",  # noqa: RUF001
    "/": "divided by|geteilt durch|divisé par|dividido (?:entre|por)|разделить на|わる|割る|除以"
    "|나누기|على|قسمة",
}
WORD_OPERATORS = {
    sign: re.compile(rf"(?<=[\d)])\s*(?:{words})\s*(?=[-(\d])", re.IGNORECASE)
    for sign, words in WORDS.items()
}
FUNCTION = r"(?:sqrt|abs|round|min|max|log|exp|sin|cos|tan|floor|ceil|factorial)\("
CANDIDATE = re.compile(rf"(?:{FUNCTION}|[\d(.\-+])(?:{FUNCTION}|[\d\s.,()+*/%\-])*")
# A number with a sign is no calculation.
CALCULATES = re.compile(r"[\d)]\s*(?:\*\*|//|[-+*/%])\s*[-(\da-z]|[a-z]\(")
# 24/7, 2024-2025: written without spaces, in words, these are rarely calculations.
JOINED_PAIR = re.compile(r"\d+[-/]\d+")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
MAX_CHARS = 200


def find_expression(text: str) -> str | None:
    """Return the longest calculation in a text, in Python's notation, or None."""
    plain = _normalise(text)
    found = [candidate.strip(" .,\n\t") for candidate in CANDIDATE.findall(plain)]
    usable = [
        expression for expression in found if _is_calculation(expression, alone_in=plain.strip())
    ]
    return max(usable, key=len, default=None)


def _normalise(text: str) -> str:
    digits = "".join(
        str(unicodedata.digit(char)) if char.isdecimal() else char
        for char in unicodedata.normalize("NFKC", text)
    )
    plain = re.sub(r"(?<=\d)\s*[×÷−·⋅–:]\s*(?=[\d(])", _translate_sign, digits)  # noqa: RUF001
    plain = plain.replace("^", "**")
    for sign, words in WORD_OPERATORS.items():
        plain = words.sub(f" {sign} ", plain)
    return DECIMAL_COMMA.sub(".", THOUSANDS.sub("", plain))


def _translate_sign(match: re.Match[str]) -> str:
    # 10:30 is a time, 10 : 30 a division.
    return match[0] if match[0] == ":" else match[0].translate(SIGNS)


def _is_calculation(expression: str, *, alone_in: str) -> bool:
    if len(expression) > MAX_CHARS or not CALCULATES.search(expression):
        return False
    if JOINED_PAIR.fullmatch(expression) and alone_in.rstrip(" =?") != expression:
        return False
    try:
        ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
