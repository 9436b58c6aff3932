"""What a provider does not know is asked once, for all workers and their followers."""

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from demo.protocol import ChatRequest
from demo.reply import Fault, FaultKind, Reply
from shared.tables import TokenFactors
from tests.helpers.client import Json, TurnmillClient
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Death, Product
from tests.helpers.talk import Store
from tests.helpers.waiting import wait_until

NO_SYSTEM = """{"error": {"message": "System role not supported", "code": 400}}"""
# Nothing here depends on the database.
pytestmark = pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """Give a model whose server does not know a parameter."""
    with ScriptedModel(unsupported=("stream_options",)) as model:
        yield model


def ask(client: TurnmillClient) -> Json:
    return client.get_turn(client.post_turn("Hello.", model="plain")["id"], wait_s=30)


def stored(product: Product) -> list[str]:
    with Store(product) as store:
        query = select(TokenFactors.refused).where(TokenFactors.model == "plain")
        found = store.run(lambda connection: connection.execute(query).scalar_one_or_none())
    return list(found or [])


def test_refusal_is_remembered_until_the_model_is_configured_anew(
    fresh_product: Product, model: ScriptedModel
) -> None:
    fresh_product.start_api()
    worker = fresh_product.start_worker("first")
    with fresh_product.client() as client:
        assert ask(client)["status"] == "completed"
        assert len(model.configured_refusals) == 1
        wait_until(lambda: stored(fresh_product) == ["stream_options"], message="not remembered")
        worker.die(Death.KILL)
        fresh_product.start_worker("second")
        assert ask(client)["status"] == "completed"
        assert len(model.configured_refusals) == 1
        client.put_model("plain")
        assert ask(client)["status"] == "completed"
        assert len(model.configured_refusals) == 2


def test_system_message_is_said_by_the_user_from_then_on(
    fresh_product: Product, model: ScriptedModel
) -> None:
    def has_system(request: ChatRequest) -> bool:
        return request.messages[0].role == "system"

    refusal = Fault(kind=FaultKind.HTTP_STATUS, status=400, body=NO_SYSTEM)
    model.when(has_system, Reply(fault=refusal))
    fresh_product.start_api()
    fresh_product.start_worker()
    with fresh_product.client() as client:
        turns = [ask(client) for _ in range(2)]
    assert [turn["status"] for turn in turns] == ["completed"] * 2
    assert [has_system(call.request) for call in model.calls] == [True, False, False]
    (said,) = model.calls[-1].request.messages
    assert said.role == "user"
    assert said.text.endswith("Hello.")
