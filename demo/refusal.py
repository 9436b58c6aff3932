"""A request that is not served: one exception, in the shape in which OpenAI's API says no."""

from typing import ClassVar

BAD_REQUEST = 400


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a fault
    """The request is refused.

    status: of the HTTP answer. param: path of the field at fault, such as `messages[0].content`.
    code: a word that clients may look at, such as `unknown_parameter`.
    """

    type: ClassVar[str] = "invalid_request_error"

    def __init__(
        self,
        message: str,
        *,
        status: int = BAD_REQUEST,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code

    def to_wire(self) -> dict[str, object]:
        """Return the body of the answer."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            },
        }


def invalid_value(path: str, expectation: str) -> Refusal:
    """Return the refusal of a value of the right type that is not one of those allowed."""
    return Refusal(
        f"Invalid value for '{path}': {expectation}.",
        param=path,
        code="invalid_value",
    )


def invalid_type(path: str, expected: str, value: object) -> Refusal:
    """Return the refusal of a value of the wrong type."""
    return Refusal(
        f"Invalid type for '{path}': expected {expected}, but got {_name_type(value)} instead.",
        param=path,
        code="invalid_type",
    )


def _name_type(value: object) -> str:
    names = {
        bool: "a boolean",
        dict: "an object",
        float: "a decimal number",
        int: "an integer",
        list: "an array",
        str: "a string",
    }
    return names.get(type(value), "null")
