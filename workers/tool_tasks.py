"""The Celery task of the tools workers. Thin: read the payload, run it in the process."""

from collections.abc import Callable

from celery import Celery

from shared.ids import ConversationId, ToolCallId, TurnId
from shared.task_names import TOOL_RUN, ToolTask


def register(app: Celery, run: Callable[[ToolTask], None]) -> None:
    """Register the task with the app.

    It may be delivered any number of times: only one claim in the database wins.
    """

    @app.task(name=TOOL_RUN, ignore_result=True)
    def run_tool(
        tool_call_id: str,
        turn_id: str,
        conversation_id: str,
        tool_name: str = "",
        timeout_s: float = 0.0,
        **_: object,
    ) -> None:
        # Unknown fields are those of a newer version's payload.
        run(
            ToolTask(
                tool_call_id=ToolCallId(tool_call_id),
                turn_id=TurnId(turn_id),
                conversation_id=ConversationId(conversation_id),
                tool_name=tool_name,
                timeout_s=timeout_s,
            ),
        )
