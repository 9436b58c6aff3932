import json
from pathlib import Path

import pytest
from pydantic import AnyHttpUrl

from shared.errors import ConfigurationError
from workers.tools.mcp_file import HttpConfig, StdioConfig, read_mcp_file

ENVIRONMENT = {"TOKEN": "t0ken", "HOME": "/home/me"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


def test_servers_are_read_in_order(path: Path) -> None:
    servers = {
        "web": {
            "url": "https://example.org/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "needs_approval": True,
        },
        "files": {
            "command": "mcp-files",
            "args": ["--root", "${HOME}/data", "$TOKEN"],
            "env": {"KEY": "${TOKEN}-${TOKEN}"},
            "timeout_s": 5,
        },
    }
    path.write_text(json.dumps({"mcpServers": servers}))

    web, files = read_mcp_file(path, ENVIRONMENT).items()

    assert web == (
        "web",
        HttpConfig(
            url=AnyHttpUrl("https://example.org/mcp"),
            headers={"Authorization": "Bearer t0ken"},
            needs_approval=True,
        ),
    )
    assert files == (
        "files",
        StdioConfig(
            command="mcp-files",
            args=["--root", "/home/me/data", "$TOKEN"],
            env={"KEY": "t0ken-t0ken"},
            timeout_s=5,
        ),
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"servers": {}}', "cannot be read"),
        ('{"mcpServers": []}', "cannot be read"),
        ('{"mcpServers": {"a b": {"command": "x"}}}', "a b cannot be a server's name"),
        ('{"mcpServers": {"a": []}}', "a: "),
        ('{"mcpServers": {"a": {}}}', "a: command: Field required"),
        ('{"mcpServers": {"a": {"url": "file:///etc"}}}', "a: url: "),
        ('{"mcpServers": {"a": {"url": "http://x", "type": "sse"}}}', "a: type: "),
        ('{"mcpServers": {"a": {"command": "x", "arg": []}}}', "a: arg: Extra inputs"),
        ('{"mcpServers": {"a": {"command": "${NOPE}"}}}', "a: the variable NOPE is not set"),
    ],
)
def test_what_is_not_understood_is_refused(path: Path, content: str, sentence: str) -> None:
    path.write_text(content)

    with pytest.raises(ConfigurationError, match=f"TURNMILL_MCP_FILE: .*{sentence}"):
        read_mcp_file(path, ENVIRONMENT)


def test_missing_file_is_refused(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="FileNotFoundError"):
        read_mcp_file(path, ENVIRONMENT)


def test_values_of_variables_are_not_told(path: Path) -> None:
    path.write_text('{"mcpServers": {"a": {"url": "${TOKEN}"}}}')

    with pytest.raises(ConfigurationError) as caught:
        read_mcp_file(path, ENVIRONMENT)
    assert "t0ken" not in caught.value.message
