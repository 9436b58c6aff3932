"""The broker: Celery's configuration for every process, and the doorbell that sends tasks.

The broker only wakes workers. Any message may be lost, doubled or reordered; the database
holds the state and the sweep rings again.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from shared.outage import Outage
from shared.redis_keys import BROKER_PREFIX
from shared.settings import Settings
from shared.task_names import QUEUES, TURNS_QUEUE, Task

CONNECT_TIMEOUT_S = 2
SOCKET_TIMEOUT_S = 10
MAX_CONNECTIONS = 200


def create_broker(settings: Settings) -> Celery:
    """Return the Celery app that every process shares; it knows no task code."""
    app = Celery("turnmill", broker=settings.broker_url, set_as_current=False)
    app.conf.update(_configuration())
    return app


class Doorbell:
    """Rings workers from an event loop, over one connection in a thread of its own."""

    def __init__(self, broker: Celery) -> None:
        self._broker = broker
        self._outage = Outage("broker")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="doorbell")

    async def ring(self, task: Task) -> None:
        """Send a task, or leave it to the sweep if the broker is away."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._send, task)
        except (OperationalError, RedisError, OSError) as error:
            self._outage.begin(error)
        else:
            self._outage.end()

    async def count_waiting(self, queue: str) -> int:
        """Return the messages that wait in a queue. Raises OSError, kombu's or Redis errors."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._count, queue)

    def close(self) -> None:
        """Let go of the thread and the connection."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._broker.close()

    def _send(self, task: Task) -> None:
        self._broker.send_task(
            task.name,
            kwargs=task.to_kwargs(),
            queue=QUEUES[task.name],
            time_limit=task.time_limit_s,
            argsrepr="()",
            kwargsrepr=task.describe(),
            ignore_result=True,
            retry=True,
            # One more try at once, for a pooled connection that died while it was idle.
            retry_policy={"max_retries": 1, "interval_start": 0, "interval_max": 0},
        )

    def _count(self, queue: str) -> int:
        with self._broker.connection_for_write() as connection:
            # Rings wait for this thread too: no more tries than they make themselves.
            connection.ensure_connection(max_retries=1, interval_start=0)
            channel: Any = connection.default_channel
            return int(channel.client.llen(queue))


def _configuration() -> dict[str, object]:
    return {
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_ignore_result": True,
        "task_acks_late": False,
        "task_create_missing_queues": False,
        "task_default_queue": TURNS_QUEUE,
        # By themselves all would share the default queue's exchange, and each message too.
        "task_queues": [
            Queue(name, Exchange(name), routing_key=name) for name in sorted(set(QUEUES.values()))
        ],
        # Flower learns of a task when a worker receives it; an event for each task that was sent
        # would double what the API publishes.
        "task_send_sent_event": False,
        "event_queue_expires": 60,
        # Concerns late acknowledgement only, which is not used; unset, Celery warns of it.
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "worker_disable_prefetch": True,
        "worker_send_task_events": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "global_keyprefix": BROKER_PREFIX,
            "priority_steps": [0],
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_timeout": SOCKET_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": 15,
            "unacked_restore_interval": 5,
            "max_connections": MAX_CONNECTIONS,
        },
    }
