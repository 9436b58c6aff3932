"""Fetching from real servers on loopback, some of which must not be reached."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from shared.errors import ToolError
from shared.settings import Settings
from tests.unit.workers.tools.calls import CONTEXT
from workers.tools.builtin import builtin_tools
from workers.tools.execution import run_tool
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool

# All of 127.0.0.0/8 is this machine; only the first is allowed.
ALLOWED = "127.0.0.1"
REFUSED = "127.0.0.2"
MAX_BYTES = 2_000


# Redirects.
TARGETS = {
    "/inside": f"http://{REFUSED}:{{port}}/page",
    "/file": "file:///etc/passwd",
    "/round": "/round",
    "/moved": "/page",
}
# Status, type, content.
PAGES = {
    "/page": (200, "text/html", b"<h1>Page</h1><p>text"),
    "/missing": (404, "text/plain", b"not here"),
    "/latin": (200, "text/plain; charset=latin-1", "größe".encode("latin-1")),
    "/meta": (200, "text/html", '<meta charset="windows-1252"><p>größe'.encode("cp1252")),
    "/utf-16": (200, "text/plain", "größe".encode("utf-16")),
    "/odd-charset": (200, "text/plain; charset=zip", b"text"),
    "/slow-charset": (200, "text/plain; charset=punycode", b"text-"),
    "/json": (200, "application/problem+json", '{"größe": 1}'.encode()),
    "/image": (200, "image/png", b"\x89PNG"),
    "/bytes": (200, "application/octet-stream", b"a\0b"),
    "/bytes-of-text": (200, "application/octet-stream", b"a,b"),
    "/malformed": (200, "text/html", b'<a "' * 200_000),
    "/bomb": (200, "text/plain", gzip.compress(b"x" * 50_000_000)),
}


class Site:
    """A server on each of the two addresses, with the requests that each saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.port = 0
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        for host in (ALLOWED, REFUSED):
            app = web.Application()
            app.router.add_get("/{name:.*}", self._answer)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            self._runners.append(runner)
            await web.TCPSite(runner, host, self.port).start()
            self.port = self.port or runner.addresses[0][1]

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()

    def url(self, path: str, host: str = ALLOWED) -> str:
        return f"http://{host}:{self.port}{path}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(f"{request.url.host}{request.path}")
        if request.path in TARGETS:
            raise web.HTTPFound(TARGETS[request.path].format(port=self.port))
        if request.path == "/slow":
            await asyncio.Event().wait()
        if request.path == "/endless":
            response = web.StreamResponse(headers={"Content-Type": "text/plain"})
            await response.prepare(request)
            while True:
                await response.write(b"x" * 1_000)
        status, media_type, body = PAGES[request.path]
        headers = {"Content-Encoding": "gzip"} if request.path == "/bomb" else {}
        headers["Content-Type"] = media_type
        return web.Response(status=status, body=body, headers=headers)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.start()
    yield site
    await site.stop()


def make_tool(allow: str = f"{ALLOWED}/32", max_bytes: int = MAX_BYTES) -> Tool:
    settings = Settings.from_environment(
        {
            "TURNMILL_TOOL_HTTP_ALLOW": allow,
            "TURNMILL_TOOL_HTTP_MAX_BYTES": str(max_bytes),
            "TURNMILL_BUILTIN_TOOLS": "http_get",
        },
    )
    return builtin_tools(settings)[0]


async def fetch(url: str, allow: str = f"{ALLOWED}/32", max_bytes: int = MAX_BYTES) -> str:
    result = await make_tool(allow, max_bytes).function(url=url)  # type: ignore[misc]
    assert isinstance(result, str)
    return result


async def test_page_is_given_as_text(site: Site) -> None:
    url = site.url("/page")

    assert await fetch(url) == f"HTTP 200 OK, text/html, {url}\n\n# Page\n\ntext"


async def test_redirect_is_followed_and_named(site: Site) -> None:
    assert site.url("/page") in await fetch(site.url("/moved"))
    assert site.seen == [f"{ALLOWED}/moved", f"{ALLOWED}/page"]


async def test_redirect_to_a_refused_address_is_not_followed(site: Site) -> None:
    with pytest.raises(ToolError, match="must not be reached"):
        await fetch(site.url("/inside"))

    assert site.seen == [f"{ALLOWED}/inside"]


@pytest.mark.parametrize(
    "host",
    [
        REFUSED,
        "127.2",
        "0x7f000002",
        "2130706434",
        "0177.0.0.2",
        "[::ffff:127.0.0.2]",
        "[::1]",
        "0.0.0.0",
        "user@127.0.0.2",
    ],
)
async def test_refused_address_is_never_connected_to(site: Site, host: str) -> None:
    with pytest.raises(ToolError):
        await fetch(site.url("/page", host))

    assert site.seen == []


@pytest.mark.parametrize("host", [ALLOWED, "localhost"])
async def test_nothing_local_is_allowed_by_default(site: Site, host: str) -> None:
    with pytest.raises(ToolError, match="is no public address"):
        await fetch(site.url("/page", host), allow="")

    assert site.seen == []


@pytest.mark.parametrize(
    "url", ["ftp://example.org/", "file:///etc/passwd", "/etc/passwd", "", "ws://a/"]
)
async def test_only_http_is_fetched(url: str) -> None:
    with pytest.raises(ToolError, match="http:// or https://"):
        await fetch(url)


@pytest.mark.parametrize("path", ["/file", "/round"])
async def test_odd_redirects_are_errors(site: Site, path: str) -> None:
    with pytest.raises(ToolError, match="cannot be fetched"):
        await fetch(site.url(path))


@pytest.mark.parametrize(
    "url", ["http://", "http://[broken", "http://a b/", f"http://{'a' * 70}.example/"]
)
async def test_broken_addresses_are_errors(url: str) -> None:
    outcome = await run_tool(
        ToolRegistry([make_tool()]),
        "http_get",
        f'{{"url": "{url}"}}',
        CONTEXT,
        timeout_s=10,
    )

    assert outcome.is_error
    assert "cannot be fetched" in outcome.content


async def test_closed_port_is_an_error(site: Site) -> None:
    url = site.url("/page")
    await site.stop()

    with pytest.raises(ToolError, match="cannot be fetched"):
        await fetch(url)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/latin", "größe"),
        ("/meta", "größe"),
        ("/utf-16", "größe"),
        ("/odd-charset", "text"),
        ("/slow-charset", "text-"),
        ("/json", '{"größe": 1}'),
        ("/image", "The content is no text and cannot be shown."),
        ("/bytes", "The content is no text and cannot be shown."),
        ("/bytes-of-text", "a,b"),
    ],
)
async def test_text_is_decoded_and_the_rest_described(site: Site, path: str, text: str) -> None:
    answer = await fetch(site.url(path))

    assert answer.partition("\n\n")[2] == text


async def test_status_is_told(site: Site) -> None:
    assert (await fetch(site.url("/missing"))).startswith("HTTP 404 Not Found, text/plain, ")


@pytest.mark.parametrize("path", ["/endless", "/bomb"])
async def test_size_is_bounded(site: Site, path: str) -> None:
    answer = await fetch(site.url(path))

    mark = f"\n[The rest of more than {MAX_BYTES} bytes was not read]"
    assert answer.partition("\n\n")[2] == "x" * MAX_BYTES + mark


async def test_page_that_takes_the_parser_for_ever_is_given_up(site: Site) -> None:
    with pytest.raises(ToolError, match="too much time or memory"):
        await fetch(site.url("/malformed"), max_bytes=800_000)


async def test_time_is_bounded(site: Site) -> None:
    tool = make_tool()
    assert tool.timeout_s == 30
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await fetch(site.url("/slow"))
