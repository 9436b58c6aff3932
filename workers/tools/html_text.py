"""Web pages as text that a model can read: headings, paragraphs, lists and where links lead.

In a `LimitedProcess`: the standard library's parser takes minutes for some malformed pages.
"""

import contextlib
import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

from workers.tools.limits import serve

UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe"})
BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "br", "dd", "div", "dl", "dt"),
        *("fieldset", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header"),
        *("hr", "li", "main", "nav", "ol", "p", "pre", "section", "table", "title", "tr", "ul"),
    },
)
# What stands before the text of an element.
LEADS = {f"h{level}": "#" * level + " " for level in range(1, 7)} | {
    "li": "- ",
    "td": "\t",
    "th": "\t",
}


def html_to_text(html: str, base_url: str) -> str:
    """Return the text of a page.

    base_url: its address, to which relative links are relative.
    """
    parser = _Parser(base_url)
    # Raised for some malformed declarations; what was read so far stands.
    with contextlib.suppress(AssertionError):
        parser.feed(html)
        parser.close()
    lines = [line.rstrip() for line in "".join(parser.parts).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Parser(HTMLParser):
    def __init__(self, base_url: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._base_url = base_url
        self._unseen: list[str] = []
        self._preformatted = 0
        self._link = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN:
            self._unseen.append(tag)
        if tag in BLOCKS:
            self.parts.append("\n")
        self.parts.append(LEADS.get(tag, ""))
        if tag == "pre":
            self._preformatted += 1
        if tag == "a":
            self._link = self._resolve(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        if tag == "a" and self._link:
            self.parts.append(f" ({self._link})")
            self._link = ""
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        text = data if self._preformatted else re.sub(r"\s+", " ", data)
        is_at_start = not self.parts or self.parts[-1].endswith(("\n", " "))
        self.parts.append(text.lstrip(" ") if is_at_start and not self._preformatted else text)

    def _resolve(self, href: str) -> str:
        if not href or href.startswith("#"):
            return ""
        try:
            url = urljoin(self._base_url, href)
            return url if urlsplit(url).scheme in ("http", "https") else ""
        except ValueError:  # a broken address in the page
            return ""


if __name__ == "__main__":
    serve(lambda request: html_to_text(request["html"], request["base_url"]))
