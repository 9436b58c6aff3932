"""What an iteration of the loop costs a worker, with a model that takes no time."""

import os
from collections.abc import Iterator
from pathlib import Path

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from tests.bench.measured import Measured
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product

ITERATIONS = 40
ROUNDS = 3
CALL = ToolCall(name="calculator", arguments={"expression": "6 * 7"})


def measure_loop(product: Product, model: ScriptedModel) -> Iterator[Measured]:
    """Yield the CPU time of the only worker per iteration: a model call and a tool call.

    The worker runs with the limits of REACT_MAX_ITERATIONS, journal, events and all.
    """
    model.respond = _answer
    (worker,) = (process for process in product.processes if process.name == "worker")
    with product.client() as client:
        found_ms = []
        # The first one warms up.
        for _ in range(ROUNDS + 1):
            before_s = cpu_s(worker.pid)
            posted = client.post_turn("How much is it?", tools=["calculator"])
            turn = client.get_turn(posted["id"], wait_s=60)
            if turn["status"] != "completed" or turn["iterations"] < ITERATIONS:
                raise RuntimeError(f"the turn was not as it should be: {turn}")
            found_ms.append(1e3 * (cpu_s(worker.pid) - before_s) / turn["iterations"])
    best_ms = min(found_ms[1:])
    yield Measured(f"loop, {ITERATIONS} iterations with a tool call: {best_ms:.1f} ms CPU for each")


def _answer(request: ChatRequest) -> Reply:
    results = sum(message.role == "tool" for message in request.messages)
    if request.tools and results < ITERATIONS:
        return Reply(tool_calls=(CALL,))
    return Reply(text="It is 42.")


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    # utime and stime; the fields are counted from the state, which is the third.
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
