"""The arrows between rooms, on the real tree; and on small made trees, that the check can fail."""

from pathlib import Path

import pytest

from tests.helpers.import_rules import check, find_modules, read_dependencies

ROOT = Path(__file__).parents[2]
DEPENDENCIES = frozenset({"celery", "redis", "logging"})

BROKEN_TREES = {
    "api-imports-workers": ({"api/a.py": "from workers.b import c"}, "wrong arrow"),
    "workers-import-api": ({"workers/a.py": "import api.b"}, "wrong arrow"),
    "shared-imports-api": ({"shared/a.py": "from api import b"}, "wrong arrow"),
    "cli-imports-workers": ({"cli/a.py": "from workers import app"}, "wrong arrow"),
    "demo-imports-shared": ({"demo/a.py": "from shared.ids import b"}, "wrong arrow"),
    "room-imports-tests": ({"api/a.py": "from tests.helpers import b"}, "wrong arrow"),
    "only-for-types": (
        {"api/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import workers.b"},
        "wrong arrow",
    ),
    "runtime-imports-tasks": (
        {"workers/runtime/a.py": "from workers import tasks", "workers/tasks.py": ""},
        "wrong arrow",
    ),
    "tools-import-react": ({"workers/tools/a.py": "from workers.react import b"}, "wrong arrow"),
    "own-code-in-function": (
        {"api/a.py": "def f():\n    from shared.ids import b"},
        "inside a function",
    ),
    "relative": ({"api/a.py": "from . import b", "api/b.py": ""}, "relative"),
    "cycle": (
        {
            "shared/a.py": "from shared import b",
            "shared/b.py": "import shared.c",
            "shared/c.py": "from shared.a import d",
        },
        "cycle",
    ),
    "utils": ({"shared/utils.py": ""}, "name the noun"),
    "module-like-dependency": ({"workers/celery.py": ""}, "named like a dependency"),
    "package-like-dependency": ({"api/redis/__init__.py": ""}, "named like a dependency"),
    "module-like-standard-library": ({"shared/logging.py": ""}, "named like a dependency"),
}


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_rooms_keep_to_the_rules() -> None:
    assert find_modules(ROOT), "the rooms are found"
    assert check(ROOT, read_dependencies(ROOT / "pyproject.toml")) == []


@pytest.mark.parametrize(("files", "rule"), BROKEN_TREES.values(), ids=BROKEN_TREES)
def test_broken_rule_is_found(tmp_path: Path, files: dict[str, str], rule: str) -> None:
    write_tree(tmp_path, files)

    broken = check(tmp_path, DEPENDENCIES)

    assert len(broken) == 1, broken
    assert rule in broken[0]


def test_allowed_arrows_are_let_through(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "api/a.py": "import celery\nfrom shared.ids import b\ndef f():\n    import redis",
            "workers/app.py": "from workers import tasks",
            "workers/tasks.py": "from workers.runtime.a import b",
            "workers/runtime/a.py": "from workers.react import c\nfrom workers.tools import d",
            "workers/tools/a.py": "from workers.context import b\nfrom shared import ids",
            "cli/a.py": "from shared.settings import Settings",
            "shared/ids.py": "",
        },
    )

    assert check(tmp_path, DEPENDENCIES) == []


def test_dependencies_are_read_by_import_name() -> None:
    names = read_dependencies(ROOT / "pyproject.toml")

    assert {"celery", "openai", "pydantic", "redis", "logging"} <= names
