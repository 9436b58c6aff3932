"""A cursor over a parsed JSON body that knows its path and refuses what is not as expected."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from demo.refusal import Refusal, invalid_type, invalid_value

# The escape of half a character, paired or not.
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class JsonField:
    """One value of the body. Every method raises Refusal if the value is not what it names."""

    value: object
    # As in `messages[0].content`; empty for the body itself.
    path: str = ""

    @property
    def is_null(self) -> bool:
        """Whether the value is null."""
        return self.value is None

    @property
    def is_text(self) -> bool:
        """Whether the value is a string."""
        return isinstance(self.value, str)

    def get(self, key: str) -> "JsonField | None":
        """Return a member of an object, or None if it is absent."""
        members = self.members()
        return self._member(key) if key in members else None

    def get_set(self, key: str) -> "JsonField | None":
        """Return a member of an object, or None if it is absent or null."""
        member = self.get(key)
        return None if member is None or member.is_null else member

    def require(self, key: str) -> "JsonField":
        """Return a member that must be there."""
        member = self.get(key)
        if member is None:
            path = self._join(key)
            raise Refusal(
                f"Missing required parameter: '{path}'.",
                param=path,
                code="missing_required_parameter",
            )
        return member

    def check_keys(self, allowed: Collection[str]) -> None:
        """Refuse an object with other members than these."""
        for key in self.members():
            if key not in allowed:
                path = self._join(key)
                raise Refusal(
                    f"Unknown parameter: '{path}'.",
                    param=path,
                    code="unknown_parameter",
                )

    def text(self, *, pattern: re.Pattern[str] | None = None, max_chars: int | None = None) -> str:
        """Return a string, which the pattern must match as a whole."""
        if not isinstance(self.value, str):
            raise invalid_type(self.path, "a string", self.value)
        if max_chars is not None and len(self.value) > max_chars:
            raise Refusal(
                f"Invalid '{self.path}': string too long. Expected a string with maximum length"
                f" {max_chars}, but got a string with length {len(self.value)} instead.",
                param=self.path,
                code="string_above_max_length",
            )
        if pattern is not None and not pattern.fullmatch(self.value):
            raise Refusal(
                f"Invalid '{self.path}': string does not match pattern. Expected a string that"
                f" matches the pattern '^{pattern.pattern}$'.",
                param=self.path,
                code="invalid_value",
            )
        return self.value

    def filled_text(self) -> str:
        """Return a string that is not empty."""
        text = self.text()
        if not text:
            raise Refusal(
                f"Invalid '{self.path}': empty string. Expected a string with minimum length 1,"
                " but got an empty string instead.",
                param=self.path,
                code="empty_string",
            )
        return text

    def choice(self, allowed: Collection[str]) -> str:
        """Return a string that is one of these."""
        text = self.text()
        if text not in allowed:
            options = ", ".join(f"'{name}'" for name in sorted(allowed))
            raise invalid_value(self.path, f"'{text}'. Supported values are: {options}")
        return text

    def items(self, *, max_items: int | None = None) -> list["JsonField"]:
        """Return the items of an array that is not empty."""
        if not isinstance(self.value, list):
            raise invalid_type(self.path, "an array of objects", self.value)
        if not self.value:
            raise self._wrong_size("empty", "minimum length 1", "an empty array", "empty_array")
        if max_items is not None and len(self.value) > max_items:
            found = f"an array with length {len(self.value)}"
            raise self._wrong_size(
                "too long", f"maximum length {max_items}", found, "array_above_max_length"
            )
        return [JsonField(item, f"{self.path}[{index}]") for index, item in enumerate(self.value)]

    def flag(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            raise invalid_type(self.path, "a boolean", self.value)
        return self.value

    def integer(self, *, minimum: int | None = None, maximum: int | None = None) -> int:
        """Return a whole number within the limits."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise invalid_type(self.path, "an integer", self.value)
        self._check_range(self.value, "integer", minimum, maximum)
        return self.value

    def number(self, *, minimum: float | None = None, maximum: float | None = None) -> float:
        """Return a number within the limits."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            raise invalid_type(self.path, "a decimal", self.value)
        self._check_range(self.value, "decimal", minimum, maximum)
        return self.value

    def members(self) -> dict[str, object]:
        """Return an object's members."""
        if not isinstance(self.value, dict):
            raise invalid_type(self.path, "an object", self.value)
        return self.value

    def _member(self, key: str) -> "JsonField":
        return JsonField(self.members()[key], self._join(key))

    def _join(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _check_range(
        self,
        value: float,
        kind: str,
        minimum: float | None,
        maximum: float | None,
    ) -> None:
        if minimum is not None and value < minimum:
            side, sign, limit = "below min", ">=", minimum
        elif maximum is not None and value > maximum:
            side, sign, limit = "above max", "<=", maximum
        else:
            return
        raise Refusal(
            f"Invalid '{self.path}': {kind} {side}imum value. Expected a value {sign} {limit}, but"
            f" got {value} instead.",
            param=self.path,
            code=f"{kind}_{side.replace(' ', '_')}_value",
        )

    def _wrong_size(self, what: str, expected: str, found: str, code: str) -> Refusal:
        return Refusal(
            f"Invalid '{self.path}': {what} array. Expected an array with {expected}, but got"
            f" {found} instead.",
            param=self.path,
            code=code,
        )


def parse_body(raw: bytes) -> JsonField:
    """Return the body as a field.

    Lone surrogates in escapes become question marks, as any server that thinks in UTF-8 must;
    NUL characters pass. Raises Refusal if the bytes are no JSON object.
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if SURROGATE.search(raw):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    # Numbers of thousands of digits are ValueErrors too; the other one is nesting without end.
    except (ValueError, RecursionError) as error:
        raise Refusal(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't"
            " using your HTTP library correctly. The OpenAI API expects a JSON payload, but what"
            " was sent was not valid JSON.)",
        ) from error
    body = JsonField(value)
    if not isinstance(value, dict):
        raise invalid_type("body", "an object", value)
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
