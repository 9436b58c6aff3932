"""Files: uploading images and getting them back."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, File, Response, UploadFile
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.datastructures import UploadFile as ReceivedFile
from starlette.exceptions import HTTPException

from api import views
from api.dependencies import FileIdOf, Parts, PartsOf
from api.upload_route import ADVICE, UploadRoute
from api.uploads import store_file
from shared.errors import NotFoundError
from shared.repositories import files
from shared.repositories.files import FileView, NewFile

# A file never changes; it is for whoever may know its id.
CACHE_CONTROL = "private, max-age=31536000, immutable"

router = APIRouter(prefix="/v1/files", tags=["files"], route_class=UploadRoute)


def _check_is_file(value: object) -> object:
    if not isinstance(value, ReceivedFile):
        raise PydanticCustomError("no_file", "must be a file: {advice}", {"advice": ADVICE})
    return value


@router.post("", status_code=HTTPStatus.CREATED)
async def post_file(
    file: Annotated[UploadFile, BeforeValidator(_check_is_file), File(description="An image.")],
    parts: PartsOf,
    response: Response,
) -> views.File:
    """Store an image; its type is told from its bytes."""
    max_bytes = parts.settings.max_file_bytes
    content = await file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The file is larger than {max_bytes} bytes: send a smaller one",
        )
    stored = await parts.background.complete(_store(parts, content))
    response.headers["Location"] = f"/v1/files/{stored.id}"
    return views.show_file(stored)


@router.get(
    "/{file_id}",
    response_class=Response,
    responses={200: {"content": {"image/*": {}}, "description": "The image"}},
)
async def get_file(file_id: FileIdOf, parts: PartsOf) -> Response:
    """Return an image."""
    file = await parts.database.read(lambda connection: files.get_file(connection, file_id))
    if file is None:
        raise NotFoundError(f"There is no file {file_id}: check the id")
    content = await parts.files.read(file_id)
    headers = {
        "Cache-Control": CACHE_CONTROL,
        "Content-Disposition": "inline",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(content, media_type=file.mime_type, headers=headers)


async def _store(parts: Parts, content: bytes) -> FileView:
    new = await store_file(parts.files, content)
    return await parts.database.write(lambda connection: _insert(connection, new))


def _insert(connection: Connection, new: NewFile) -> FileView:
    files.insert_files(connection, [new])
    stored = files.get_file(connection, new.id)
    if stored is None:
        raise LookupError(f"{new.id} was written and is not there")
    return stored
