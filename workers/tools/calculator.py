"""The tool that calculates. The expression is parsed and walked, never evaluated as code.

All is bounded (length, digits of every intermediate result), so that one call takes
milliseconds whatever the model asks for; the tool runs in the worker's loop.
"""

import ast
import math
import operator
from collections.abc import Callable

from shared.errors import ToolError
from workers.tools.tool import tool

Number = int | float

MAX_CHARS = 1_000
# Below the 4,300 digits that Python turns into text.
MAX_DIGITS = 4_000
MAX_BITS = int(MAX_DIGITS * math.log2(10))
MAX_FACTORIAL = 1_000
# Most characters of the expression in a sentence about it.
EXCERPT_CHARS = 80

CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e}


@tool(is_repeatable=True)
async def calculator(expression: str) -> str:
    """Calculate an arithmetic expression and return the number.

    Understands + - * / // % ** and parentheses, the functions sqrt, abs, round, min, max, log,
    exp, sin, cos, tan (radians), floor, ceil and factorial, and the constants pi and e.

    expression: for example (3 + 4) * sqrt(2)
    """
    if len(expression) > MAX_CHARS:
        raise ToolError(f"The expression is longer than {MAX_CHARS} characters")
    # On one line, a node's columns are enough to show it.
    source = " ".join(expression.split())
    try:
        node = _parse(source)
        return _show(_Calculation(source).value(node))
    except RecursionError as error:
        raise ToolError("The expression is nested too deeply") from error


def _parse(source: str) -> ast.expr:
    try:
        return ast.parse(source, mode="eval").body
    # What the parser raises on nonsense, NUL characters and many parentheses.
    except (SyntaxError, ValueError, MemoryError) as error:
        raise ToolError(f"This is no arithmetic expression: {_cut(source)}") from error


class _Calculation:
    """Calculates the nodes of one expression."""

    def __init__(self, source: str) -> None:
        self._source = source.encode()

    def value(self, node: ast.expr) -> Number:
        """Return the number a node stands for. Raises ToolError."""
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            literal = node.value
            return self._apply(node, lambda: literal)
        if isinstance(node, ast.Name) and node.id in CONSTANTS:
            return CONSTANTS[node.id]
        if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            return UNARY[type(node.op)](self.value(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return self._apply(
                node,
                BINARY[type(node.op)],
                # Here rather than in a function of its own: half the frames for a long sum.
                self.value(node.left),
                self.value(node.right),
            )
        if isinstance(node, ast.Call) and not node.keywords:
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name in FUNCTIONS:
                return self._apply(node, FUNCTIONS[name], *map(self.value, node.args))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            raise ToolError("^ is not understood: write ** for a power")
        raise ToolError(f"Not understood: {self._excerpt(node)}")

    def _apply(
        self,
        node: ast.expr,
        function: Callable[..., object],
        *numbers: Number,
    ) -> Number:
        try:
            return _checked(function(*numbers))
        except ZeroDivisionError as error:
            raise ToolError(f"Division by zero: {self._excerpt(node)}") from error
        except OverflowError as error:
            raise ToolError(f"The result is too large: {self._excerpt(node)}") from error
        # A wrong number or kind of arguments, or one outside of the function's domain.
        except (TypeError, ValueError) as error:
            raise ToolError(f"Not defined: {self._excerpt(node)} ({error})") from error

    def _excerpt(self, node: ast.expr) -> str:
        return _cut(self._source[node.col_offset : node.end_col_offset].decode(errors="replace"))


def _cut(text: str) -> str:
    return text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]}…"


def _checked(value: object) -> Number:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise OverflowError
        return value
    if not isinstance(value, float):
        raise ValueError("not a real number")  # noqa: TRY004 - a complex root is a wrong value
    if not math.isfinite(value):
        raise OverflowError
    return value


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and right and left % right == 0:
        return left // right
    return left / right


def _power(base: Number, exponent: Number) -> object:
    are_whole = isinstance(base, int) and isinstance(exponent, int)
    # The length is at most twice that of the result; powers of 0, 1 and -1 do not grow.
    if are_whole and abs(base) > 1 and int(base).bit_length() * exponent > 2 * MAX_BITS:
        raise OverflowError
    return base**exponent


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MAX_DIGITS:
        raise ValueError("the number of digits is wrong")
    return round(number, digits) if digits else round(number)


def _factorial(number: Number) -> int:
    if not isinstance(number, int):
        raise TypeError("only whole numbers have a factorial")
    if number > MAX_FACTORIAL:
        raise OverflowError
    return math.factorial(number)


def _show(value: Number) -> str:
    # 15 digits are what a float holds for sure: 0.1 + 0.2 is 0.3. Adding 0.0 takes a minus off 0.
    return str(value) if isinstance(value, int) else format(value + 0.0, ".15g")


UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
BINARY: dict[type[ast.operator], Callable[[Number, Number], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
FUNCTIONS: dict[str, Callable[..., object]] = {
    "sqrt": math.sqrt,
    "abs": abs,
    "round": _round,
    "min": min,
    "max": max,
    "log": math.log,
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "floor": math.floor,
    "ceil": math.ceil,
    "factorial": _factorial,
}
