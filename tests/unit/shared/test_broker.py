"""The broker's configuration."""

from shared.broker import create_broker
from shared.settings import Settings
from shared.task_names import QUEUES


def test_a_message_goes_to_one_queue() -> None:
    broker = create_broker(Settings.from_environment({"TURNMILL_REDIS_URL": "redis://nowhere"}))

    queues = broker.amqp.queues
    addresses = {(queue.exchange.name, queue.routing_key) for queue in queues.values()}

    assert set(queues) == set(QUEUES.values())
    assert len(addresses) == len(queues)
