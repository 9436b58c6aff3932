"""A worker that cannot do its work says why and ends, before it takes any."""

import pytest

from tests.helpers.product import Product, ProductProcess
from tests.helpers.waiting import wait_until


def ended(process: ProductProcess) -> bool:
    return not process.is_alive


@pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ("nope:x", "'nope:x' cannot be imported"),
        ("os:nope", "'os:nope' cannot be imported"),
        ("os:getcwd", "'os:getcwd' is no tool"),
        ("workers.tools.calculator:calculator", "two tools named calculator"),
    ],
)
def test_bad_tools_end_the_worker_with_a_sentence(
    fresh_product: Product,
    tools: str,
    says: str,
) -> None:
    worker = fresh_product._start("worker", "worker", {"TURNMILL_TOOLS": tools})

    wait_until(lambda: ended(worker), timeout_s=30, message="the worker goes on")

    assert worker.wait() == 2
    assert says in worker.log_tail
    assert "Traceback" not in worker.log_tail
