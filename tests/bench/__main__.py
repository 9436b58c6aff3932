"""Run all measurements and print a line for each; leave with 1 if one misses its limit."""

import contextlib
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

from demo.reply import Reply
from tests.bench.burst import measure_burst
from tests.bench.chunks import measure_chunks
from tests.bench.estimator import measure_estimator
from tests.bench.guard import measure_guard
from tests.bench.history import measure_history
from tests.bench.loop import measure_loop
from tests.bench.measured import Measured
from tests.helpers.databases import Databases, PostgresDatabases, SqliteDatabases
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product
from tests.helpers.servers import PostgresServer, RedisServer

MODEL_S = 2.0
TURNS = 300
ROUNDS = 3


def main() -> int:
    """Measure, on both stores what depends on them."""
    is_within = True
    for measured in _measure():
        sys.stdout.write(f"{measured}\n")
        sys.stdout.flush()
        is_within = is_within and measured.holds
    return 0 if is_within else 1


def _measure() -> Iterator[Measured]:
    yield from measure_estimator()
    yield from measure_guard()
    with tempfile.TemporaryDirectory() as name, PostgresServer() as postgres:
        folder = Path(name)
        yield from measure_chunks(folder)
        stores: dict[str, Databases] = {
            "sqlite": SqliteDatabases(folder),
            "postgres": PostgresDatabases(postgres),
        }
        for store, databases in stores.items():
            for measured in measure_history(databases.create()):
                yield Measured(f"{store}, {measured.text}", holds=measured.holds)
            (folder / store).mkdir()
            with _product(folder / store, databases.create()) as (product, model):
                for measured in measure_loop(product, model):
                    yield Measured(f"{store}, {measured.text}", holds=measured.holds)
                model.respond = lambda _request: Reply(text="A short answer.", first_byte_s=MODEL_S)
                for number in range(1, ROUNDS + 1):
                    wall_s = measure_burst(product.url, TURNS)
                    yield Measured(
                        f"{store}, round {number}: {TURNS} turns at once, one worker process,"
                        f" model {MODEL_S:g} s: {wall_s:.2f} s"
                        f" ({wall_s / MODEL_S:.2f} times the model)",
                    )


@contextlib.contextmanager
def _product(folder: Path, database_url: str) -> Generator[tuple[Product, ScriptedModel]]:
    with RedisServer() as redis, ScriptedModel() as model:
        product = Product(
            folder,
            database_url=database_url,
            redis_url=redis.url,
            model_base_url=model.base_url,
            environment={"TURNMILL_LEASE_S": "15", "TURNMILL_SWEEP_S": "3"},
        )
        try:
            product.start_api()
            product.start_worker()
            yield product, model
        finally:
            product.stop_all()


if __name__ == "__main__":
    sys.exit(main())
