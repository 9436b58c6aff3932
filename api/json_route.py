"""Reading JSON bodies: strictly, and without falling over what is nested too deeply."""

import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException


class JsonRequest(Request):
    """A request whose body is JSON as RFC 8259 has it."""

    async def json(self) -> Any:  # noqa: ANN401 - where JSON enters
        """Parse the body. Raises JSONDecodeError."""
        return parse_json(await self.body())

    async def check_type(self) -> None:
        """Raise HTTPException if there is a body that does not say that it is JSON.

        Leniency here would let any web page post to a server on the reader's machine.
        """
        content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = content_type == "application/json" or content_type.endswith("+json")
        if not is_json and await self.body():
            raise HTTPException(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                'The body must be JSON: send the header "Content-Type: application/json"',
            )


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - where JSON enters
    """Parse JSON. Raises JSONDecodeError, whatever is wrong with it."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deeply", "", 0) from None
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise json.JSONDecodeError(reason, "", 0) from None


class JsonRoute(APIRoute):
    """A route that reads its body as `JsonRequest` does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            json_request = JsonRequest(request.scope, request.receive)
            if self.body_field is not None:
                await json_request.check_type()
            return await handler(json_request)

        return handle


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
