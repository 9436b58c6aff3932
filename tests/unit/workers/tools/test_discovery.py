import sys
from pathlib import Path

import pytest

from shared.errors import ConfigurationError
from shared.settings import Settings
from workers.tools.discovery import discover_tools

BUILTIN = ("calculator", "current_time", "text_search", "http_get", "json_query")
MODULE = '''\
from workers.tools.tool import tool

def make(name):
    def function() -> str:
        """Do it."""
        return name
    return tool(name=name)(function)

ONE = make("one")
MANY = [make("two"), make("three")]
MIXED = [make("four"), 4]

from workers.tools.hooks import ToolHook

class Waiting(ToolHook):
    def before(self, call):
        return None

HOOKS = [ToolHook(), ToolHook()]
WAITING = Waiting()
'''
ENTRY_POINTS = """\
[turnmill.tools]
one = found_by_tests:ONE
many = found_by_tests:MANY
gone = found_by_tests:GONE
[turnmill.tool_hooks]
both = found_by_tests:HOOKS
"""


@pytest.fixture(autouse=True)
def _installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package with tools on the module path, as pip leaves it."""
    (tmp_path / "found_by_tests.py").write_text(MODULE, encoding="utf-8")
    info = tmp_path / "found_by_tests-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: found-by-tests\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "found_by_tests", raising=False)


def names(tools: str = "", builtin: str = "") -> tuple[str, ...]:
    settings = Settings.from_environment(
        {"TURNMILL_TOOLS": tools, "TURNMILL_BUILTIN_TOOLS": builtin},
    )
    return discover_tools(settings).names


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ("", ()),
        ("found_by_tests:ONE", ("one",)),
        ("found_by_tests:MANY", ("two", "three")),
        ("@one", ("one",)),
        (" @many, found_by_tests:ONE ,", ("two", "three", "one")),
    ],
)
def test_tools_are_found_after_the_builtin_ones(tools: str, found: tuple[str, ...]) -> None:
    assert names(tools) == (*BUILTIN, *found)


@pytest.mark.parametrize(
    ("builtin", "found"),
    [("none", ()), ("current_time, calculator", ("calculator", "current_time"))],
)
def test_builtin_tools_can_be_chosen(builtin: str, found: tuple[str, ...]) -> None:
    assert names("@one", builtin) == (*found, "one")


def test_unknown_builtin_tool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"TURNMILL_BUILTIN_TOOLS: there is no clock"):
        names(builtin="clock")


@pytest.mark.parametrize(
    ("tools", "sentence"),
    [
        ("nope:x", "'nope:x' cannot be imported"),
        ("found_by_tests", "give module:name"),
        ("found_by_tests:GONE", "cannot be imported"),
        ("found_by_tests:make", "'found_by_tests:make' is no tool"),
        ("found_by_tests:MIXED", "'found_by_tests:MIXED' is no tool"),
        ("@nope", r"no entry point '@nope' in turnmill.tools \(@gone, @many, @one\)"),
        ("@gone", "'@gone' cannot be imported"),
        ("@one,found_by_tests:ONE", "two tools named one"),
    ],
)
def test_what_is_no_tool_is_refused(tools: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        names(tools)


def test_hooks_are_found() -> None:
    settings = Settings.from_environment({"TURNMILL_TOOL_HOOKS": "@both,found_by_tests:HOOKS"})

    assert len(discover_tools(settings).hooks) == 4


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        ("found_by_tests:ONE", "'found_by_tests:ONE' is no hook"),
        ("found_by_tests:Waiting", "'found_by_tests:Waiting' is no hook"),
        ("found_by_tests:WAITING", "before and after of Waiting must be async"),
        ("@one", r"no entry point '@one' in turnmill.tool_hooks"),
    ],
)
def test_what_is_no_hook_is_refused(hooks: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        discover_tools(Settings.from_environment({"TURNMILL_TOOL_HOOKS": hooks}))
