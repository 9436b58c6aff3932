"""The tool that reads the web. What the model names is not trusted: see `AddressGate`."""

import codecs
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    DummyCookieJar,
    TCPConnector,
)
from aiohttp.resolver import DefaultResolver

from shared.errors import ToolError
from workers.tools.addresses import AddressGate, CheckedResolver
from workers.tools.limited_process import LimitedProcess

MAX_REDIRECTS = 5
# Bytes in which a page says its encoding, or a file that it is no text.
HEAD_BYTES = 2_048
META_CHARSET = re.compile(rb"<meta[^>]{1,200}?charset\s*=\s*[\"']?([\w-]{1,40})", re.IGNORECASE)
TEXT_TYPE = re.compile(
    r"text/.+|application/(.+\+)?(json|xml|yaml|x-ndjson|javascript|toml|sql|x-www-form-urlencoded)"
    r"|.+\+(json|xml|yaml)",
)
HTML_TYPES = ("text/html", "application/xhtml+xml")
UNKNOWN_TYPES = ("", "application/octet-stream")
BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Decoders that the web does not know, some of them slow.
FOREIGN_CODECS = frozenset(
    {"idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined", "utf-7"},
)
HEADERS = {"User-Agent": "turnmill", "Accept": "text/*, application/json, */*;q=0.5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a server answered."""

    # Of the last redirect.
    url: str
    status: str
    # Without parameters; empty if the server named none.
    media_type: str
    charset: str | None
    # None: not read, since its type is no text.
    body: bytes | None
    is_cut: bool


class HttpGet:
    """Fetches from addresses that a gate lets through."""

    def __init__(self, gate: AddressGate, *, max_bytes: int) -> None:
        self._gate = gate
        self._max_bytes = max_bytes
        self._html_reader = LimitedProcess("workers.tools.html_text")

    async def run(self, url: str) -> str:
        """Fetch a web address and return its text; of HTML only what a reader sees.

        url: starts with http:// or https://
        """
        answer = await self._fetch(url)
        text = _decode(answer)
        if text is not None and answer.media_type in HTML_TYPES:
            text = await self._html_reader.ask(html=text, base_url=answer.url)
        head = f"HTTP {answer.status}, {answer.media_type or 'type unknown'}, {answer.url}"
        if text is None:
            return f"{head}\n\nThe content is no text and cannot be shown."
        mark = f"\n[The rest of more than {self._max_bytes} bytes was not read]"
        return f"{head}\n\n{text}{mark if answer.is_cut else ''}"

    async def _fetch(self, url: str) -> _Answer:
        try:
            if urlsplit(url).scheme not in ("http", "https"):
                raise ToolError("Only addresses that start with http:// or https:// are fetched")
            async with (
                self._open_session() as session,
                session.get(url, max_redirects=MAX_REDIRECTS) as response,
            ):
                return await self._read(response)
        # A ValueError is that of an address which cannot be parsed or encoded.
        except (ClientError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise ToolError(f"{url} cannot be fetched: {reason}") from error

    def _open_session(self) -> ClientSession:
        # One for each call: nothing of a call is left for another.
        connector = TCPConnector(
            resolver=CheckedResolver(self._gate, DefaultResolver()),
            socket_factory=self._gate.open_socket,
            force_close=True,
        )
        return ClientSession(
            connector=connector,
            cookie_jar=DummyCookieJar(),
            headers=HEADERS,
            trust_env=False,
        )

    async def _read(self, response: ClientResponse) -> _Answer:
        has_type = "Content-Type" in response.headers
        media_type = response.content_type.lower() if has_type else ""
        is_readable = media_type in UNKNOWN_TYPES or TEXT_TYPE.fullmatch(media_type) is not None
        body = await self._read_body(response) if is_readable else None
        return _Answer(
            url=str(response.url),
            status=f"{response.status} {response.reason or ''}".strip(),
            media_type=media_type,
            charset=response.charset,
            body=None if body is None else body[: self._max_bytes],
            is_cut=body is not None and len(body) > self._max_bytes,
        )

    async def _read_body(self, response: ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._max_bytes:
                break
        return bytes(body)


def _decode(answer: _Answer) -> str | None:
    """Return what the answer says; None if it is no text."""
    body = answer.body
    if body is None:
        return None
    is_unknown = answer.media_type in UNKNOWN_TYPES
    if is_unknown and b"\0" in body[:HEAD_BYTES]:
        return None
    return body.decode(_encoding(answer, body), "replace")


def _encoding(answer: _Answer, body: bytes) -> str:
    for bom, encoding in BOMS:
        if body.startswith(bom):
            return encoding
    name = answer.charset
    if name is None and answer.media_type in HTML_TYPES:
        found = META_CHARSET.search(body[:HEAD_BYTES])
        name = found[1].decode() if found else None
    return _known_encoding(name) if name else "utf-8"


def _known_encoding(name: str) -> str:
    try:
        encoding = codecs.lookup(name).name
        # Refused by the codecs that are none of text: hex, zip.
        "a".encode(encoding)
    except LookupError:
        return "utf-8"
    return "utf-8" if encoding in FOREIGN_CODECS else encoding
