"""The Celery tasks. Thin: read the payload, run it in the process.

Each may be delivered any number of times, in any order: only one claim in the database wins.
"""

from celery import Celery

from shared.ids import ConversationId, TurnId
from shared.task_names import TURN_REACT, TurnTask
from workers.runtime.process import WorkerProcess


def register(app: Celery, process: WorkerProcess) -> None:
    """Register the tasks with the app."""

    @app.task(name=TURN_REACT, ignore_result=True)
    def run_react(turn_id: str, conversation_id: str, attempt: int = 0, **_: object) -> None:
        # Unknown fields are those of a newer version's payload.
        process.run_turn(
            TurnTask(
                turn_id=TurnId(turn_id),
                conversation_id=ConversationId(conversation_id),
                attempt=attempt,
            ),
        )
