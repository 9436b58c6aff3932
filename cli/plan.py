"""What one `turnmill up` will run: every address, setting and child, decided before the start."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from cli import probes, programs
from cli.child import ChildSpec
from cli.model_choice import DEMO_KEY, DEMO_MODEL, needs_demo
from cli.ports import check_port, find_free_port, http_url, is_port_free, reachable_host
from shared.embedded_redis import HOST as REDIS_HOST
from shared.embedded_redis import EmbeddedRedis
from shared.errors import ConfigurationError
from shared.settings import Settings
from shared.task_names import TOOLS_QUEUE, TURNS_QUEUE

DEMO_HOST = "127.0.0.1"
# Above the time that workers take to hand over their turns.
WORKER_STOP_SPARE_S = 10.0
# Above the time that the API gives to open requests.
API_STOP_SPARE_S = 5.0
STOP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the command line of `turnmill up` asks for."""

    workers: int
    with_flower: bool
    # None: as the settings say.
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Addresses and children."""

    # As the children see them: ports and URLs are filled in.
    settings: Settings
    choices: Choices
    # None if a Redis of the user's own is used.
    redis: EmbeddedRedis | None
    # None if a real model is configured.
    demo_port: int | None
    # Of every child.
    environment: Mapping[str, str] = field(repr=False)

    @property
    def api_url(self) -> str:
        """URL of the API, as this machine reaches it."""
        return http_url(self.settings.host, self.settings.port)

    @property
    def flower_url(self) -> str:
        """URL of Flower, as this machine reaches it."""
        return http_url(self.settings.flower_host, self.settings.flower_port)

    def check_ports(self) -> None:
        """Raise ConfigurationError if the API or Flower could not listen."""
        settings = self.settings
        check_port(
            settings.host,
            settings.port,
            what="The API",
            remedy="choose another with --port or TURNMILL_PORT",
        )
        if self.choices.with_flower:
            if settings.port and settings.flower_port == settings.port:
                raise ConfigurationError(
                    f"The API and Flower cannot both listen on port {settings.port}: choose"
                    " another with TURNMILL_FLOWER_PORT or --port",
                )
            check_port(
                settings.flower_host,
                settings.flower_port,
                what="Flower",
                remedy="choose another with TURNMILL_FLOWER_PORT, or use --no-flower",
            )

    def groups(self) -> list[list[list[ChildSpec]]]:
        """Return the children in stages: each stage needs the one before it to be ready.

        A stage consists of groups; children of a group are stopped together.
        """
        servers = [[spec] for spec in (self._redis(), self._demo()) if spec]
        product = [[self._flower()]] if self.choices.with_flower else []
        workers = [
            self._worker(f"worker-{number + 1}", TURNS_QUEUE)
            for number in range(self.choices.workers)
        ]
        if workers:
            workers.append(self._worker("tools-1", TOOLS_QUEUE))
        return [servers, [*product, [self._api()], workers]]

    def _redis(self) -> ChildSpec | None:
        if self.redis is None:
            return None
        server = self.redis
        return ChildSpec(
            name="redis",
            command=server.command,
            environment=self.environment,
            is_ready=lambda _pid: server.answers(),
            stop_timeout_s=STOP_S,
        )

    def _demo(self) -> ChildSpec | None:
        if self.demo_port is None:
            return None
        return ChildSpec(
            name="demo",
            command=programs.demo_command(DEMO_HOST, self.demo_port),
            environment=self.environment,
            is_ready=probes.port_is_open(DEMO_HOST, self.demo_port),
            stop_timeout_s=STOP_S,
        )

    def _api(self) -> ChildSpec:
        settings = self.settings
        return ChildSpec(
            name="api",
            command=programs.api_command(settings),
            environment=self.environment,
            is_ready=probes.api_is_ready(reachable_host(settings.host), settings.port),
            stop_timeout_s=programs.API_GRACE_S + API_STOP_SPARE_S,
        )

    def _flower(self) -> ChildSpec:
        settings = self.settings
        host = reachable_host(settings.flower_host)
        return ChildSpec(
            name="flower",
            command=programs.flower_command(settings),
            environment={**self.environment, **programs.flower_environment(settings)},
            is_ready=probes.port_is_open(host, settings.flower_port),
            stop_timeout_s=STOP_S,
        )

    def _worker(self, name: str, queue: str) -> ChildSpec:
        settings = self.settings
        return ChildSpec(
            name=name,
            command=programs.worker_command(settings, name=name, queues=[queue]),
            environment=self.environment,
            is_ready=probes.worker_is_ready(settings.data_dir),
            stop_timeout_s=settings.drain_s + WORKER_STOP_SPARE_S,
        )


def make_plan(
    settings: Settings,
    choices: Choices,
    *,
    environment: Mapping[str, str],
    directory: str,
) -> Plan:
    """Decide on everything. directory: the current one.

    Raises ConfigurationError if the settings contradict each other.
    """
    redis = _embed_redis(settings)
    demo_port = find_free_port(DEMO_HOST) if needs_demo(settings) else None
    update: dict[str, object] = {
        "data_dir": settings.data_dir.absolute(),
        "port": _choose_port(settings, choices),
    }
    if choices.with_flower:
        update["flower_port"] = _choose_flower_port(settings)
    if redis is not None:
        update["redis_url"] = redis.url
    if demo_port is not None:
        update |= {
            "llm_base_url": f"{http_url(DEMO_HOST, demo_port)}/v1",
            "llm_model": DEMO_MODEL,
            "llm_api_key": SecretStr(DEMO_KEY),
        }
    resolved = settings.model_copy(update=update)
    plan = Plan(
        settings=resolved,
        choices=choices,
        redis=redis,
        demo_port=demo_port,
        environment=compose_environment(environment, resolved, directory=directory),
    )
    plan.groups()  # refuses what cannot be started
    return plan


def compose_environment(
    environment: Mapping[str, str],
    settings: Settings,
    *,
    directory: str,
) -> dict[str, str]:
    """Return the environment of all children: the user's own, with the plan's settings in it."""
    key = settings.llm_api_key
    decided = {
        "TURNMILL_DATA_DIR": str(settings.data_dir),
        "TURNMILL_REDIS_URL": settings.broker_url,
        "TURNMILL_PORT": str(settings.port),
        "TURNMILL_FLOWER_PORT": str(settings.flower_port),
        # Read by us, who show it to people.
        "TURNMILL_LOG_FORMAT": "json",
        "LLM_BASE_URL": settings.llm_base_url,
        "LLM_MODEL": settings.llm_model or "",
        "LLM_API_KEY": key.get_secret_value() if key else "",
        # Their lines arrive when they are written.
        "PYTHONUNBUFFERED": "1",
    }
    return programs.module_environment({**environment, **decided}, directory=directory)


def _embed_redis(settings: Settings) -> EmbeddedRedis | None:
    if settings.redis_url is not None:
        return None
    return EmbeddedRedis(port=find_free_port(REDIS_HOST), folder=settings.data_dir.absolute())


def _choose_port(settings: Settings, choices: Choices) -> int:
    asked = settings.port if choices.port is None else choices.port
    return asked or find_free_port(settings.host)


def _choose_flower_port(settings: Settings) -> int:
    """Keep to a port that the user chose; another than the default one will do as well."""
    port, host = settings.flower_port, settings.flower_host
    is_chosen = "flower_port" in settings.model_fields_set and port != 0
    return port if is_chosen or (port and is_port_free(host, port)) else find_free_port(host)
