"""Reading forms with a file: checked before a byte of the body is read."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

ADVICE = "send the image as multipart/form-data in the field `file`"
# Where browsers say that a request comes from when it is a page of ours, or the user.
OWN_SITES = (None, "same-origin", "none")


class UploadRoute(APIRoute):
    """A route whose body, if it takes one, is a multipart form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if self.body_field is None:
                return await handler(request)
            _check(request.headers)
            try:
                return await handler(request)
            except HTTPException as error:
                if error.status_code != HTTPStatus.BAD_REQUEST:
                    raise
                raise HTTPException(
                    HTTPStatus.BAD_REQUEST, f"The form cannot be read: {ADVICE}"
                ) from error

        return handle


def _check(headers: Headers) -> None:
    # Browsers let any web page post a form to a server on the reader's machine.
    if headers.get("sec-fetch-site") not in OWN_SITES:
        raise HTTPException(
            HTTPStatus.FORBIDDEN, "Pages of other sites may not upload: send it from your server"
        )
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "multipart/form-data":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The body must be a form: {ADVICE}")
