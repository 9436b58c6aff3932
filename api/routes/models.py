"""Model configurations."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Response
from sqlalchemy import Connection

from api import views
from api.dependencies import PartsOf
from api.idempotency import write_once
from api.json_route import JsonRoute
from shared.errors import NotFoundError
from shared.model_spec import ModelName, ModelSpec
from shared.repositories import model_configs
from shared.repositories.model_configs import ModelConfig

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=JsonRoute)

NameOf = Annotated[ModelName, Path()]


@router.get("")
async def list_models(parts: PartsOf) -> views.Page[views.Model]:
    """Return all model configurations, by name."""
    found = await parts.database.read(model_configs.list_model_configs)
    return views.Page(items=[views.show_model(item) for item in found], next=None)


@router.get("/{name:path}")
async def get_model(name: NameOf, parts: PartsOf) -> views.Model:
    """Return a model configuration."""
    found = await parts.database.read(
        lambda connection: model_configs.get_model_config(connection, name),
    )
    if found is None:
        raise _unknown()
    return views.show_model(found)


@router.put("/{name:path}", responses={201: {"model": views.Model}})
async def put_model(
    name: NameOf,
    body: ModelSpec,
    parts: PartsOf,
    response: Response,
) -> views.Model:
    """Create or replace a model configuration; a role goes over to it from any other."""
    config = ModelConfig(name=name, **body.model_dump())

    def work(connection: Connection) -> tuple[bool, ModelConfig | None]:
        is_new = model_configs.put_model_config(connection, config)
        return is_new, model_configs.get_model_config(connection, name)

    is_new, stored = await write_once(parts.database, work)
    if is_new:
        response.status_code = HTTPStatus.CREATED
    return views.show_model(stored or config)


@router.delete("/{name:path}", status_code=HTTPStatus.NO_CONTENT)
async def delete_model(name: NameOf, parts: PartsOf) -> None:
    """Delete a model configuration."""
    is_gone = await parts.database.write(
        lambda connection: model_configs.delete_model_config(connection, name),
    )
    if not is_gone:
        raise _unknown()


def _unknown() -> NotFoundError:
    return NotFoundError("There is no configuration for this model: GET /v1/models lists all")
