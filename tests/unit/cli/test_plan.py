import socket
from pathlib import Path

import pytest

from cli.plan import Choices, Plan, make_plan
from shared.errors import ConfigurationError
from shared.settings import Settings

ALL = Choices(workers=2, with_flower=True)
MODEL = {"LLM_MODEL": "m", "LLM_API_KEY": "k", "LLM_BASE_URL": "http://127.0.0.1:1/v1"}
SERVERS = {
    "TURNMILL_REDIS_URL": "redis://127.0.0.1:6379/0",
    "TURNMILL_DATABASE_URL": "postgresql://127.0.0.1/turnmill",
}


def plan_for(environment: dict[str, str], choices: Choices = ALL) -> Plan:
    settings = Settings.from_environment(environment)
    return make_plan(settings, choices, environment=environment, directory="/somewhere")


def names(plan: Plan) -> list[list[list[str]]]:
    return [[[spec.name for spec in group] for group in stage] for stage in plan.groups()]


def test_everything_is_embedded_by_default() -> None:
    plan = plan_for({})

    assert names(plan) == [
        [["redis"], ["demo"]],
        [["flower"], ["api"], ["worker-1", "worker-2", "tools-1"]],
    ]


def test_own_servers_and_model_are_used() -> None:
    plan = plan_for(SERVERS | MODEL, Choices(workers=0, with_flower=False))

    assert names(plan) == [[], [["api"], []]]
    assert plan.environment.items() >= (SERVERS | MODEL).items()


def test_children_learn_of_the_embedded_parts() -> None:
    plan = plan_for({"TURNMILL_DATA_DIR": "data", "TURNMILL_LEASE_S": "7"})

    assert plan.redis is not None
    environment = plan.environment
    assert environment["TURNMILL_REDIS_URL"] == plan.redis.url
    assert environment["TURNMILL_DATA_DIR"] == str(Path.cwd() / "data")
    assert environment["TURNMILL_LEASE_S"] == "7"
    assert environment["LLM_BASE_URL"] == f"http://127.0.0.1:{plan.demo_port}/v1"
    assert environment["LLM_MODEL"] == "turnmill-demo"
    assert environment["LLM_API_KEY"] == "demo"


def test_settings_of_a_child_are_those_of_the_plan() -> None:
    plan = plan_for({}, Choices(workers=1, with_flower=True, port=0))

    assert Settings.from_environment(plan.environment).port == plan.settings.port != 0


def test_secrets_are_not_in_what_is_printed() -> None:
    plan = plan_for({"LLM_MODEL": "m", "LLM_API_KEY": "secret-key"})

    assert "secret-key" not in repr(plan)
    assert "secret-key" not in repr(plan.groups())


def test_workers_may_drain_before_they_are_killed() -> None:
    plan = plan_for({"TURNMILL_DRAIN_S": "100"})

    workers = plan.groups()[1][-1]
    assert [spec.stop_timeout_s for spec in workers] == [110, 110, 110]


def test_port_on_the_command_line_beats_the_setting() -> None:
    plan = plan_for({"TURNMILL_PORT": "81"}, Choices(workers=1, with_flower=False, port=82))

    assert plan.api_url == "http://127.0.0.1:82"


def test_flower_leaves_its_default_port_to_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings.model_construct(**dict(Settings.from_environment({})))
        settings = settings.model_copy(update={"flower_port": port})
        settings.model_fields_set.clear()
        plan = make_plan(settings, ALL, environment={}, directory="/")

    assert plan.settings.flower_port != port


def test_flower_keeps_to_a_port_that_was_chosen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = plan_for({"TURNMILL_FLOWER_PORT": str(port), "TURNMILL_PORT": "0"})

        with pytest.raises(ConfigurationError, match="Flower cannot listen") as caught:
            plan.check_ports()

    assert "TURNMILL_FLOWER_PORT" in caught.value.message


def test_busy_port_of_the_api_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = plan_for({}, Choices(workers=1, with_flower=False, port=port))

        with pytest.raises(ConfigurationError, match=rf"port {port}: it is in use.*--port"):
            plan.check_ports()


def test_flower_open_to_others_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigurationError, match="TURNMILL_FLOWER_BASIC_AUTH"):
        plan_for({"TURNMILL_FLOWER_HOST": "0.0.0.0", "TURNMILL_FLOWER_PORT": "0"})
