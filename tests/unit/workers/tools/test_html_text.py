import pytest

from workers.tools.html_text import html_to_text

BASE = "https://example.org/a/b"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("", ""),
        ("plain  text\n here", "plain text here"),
        ("<p>one<p>two", "one\ntwo"),
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("a <b>bold</b> word", "a bold word"),
        ("<h2>Title</h2><p>text", "## Title\n\ntext"),
        ("<ul><li>one</li><li>two</li></ul>", "- one\n\n- two"),
        ("<pre>a\n  b</pre>", "a\n  b"),
        ("a&amp;b &lt;c&gt; &uuml;", "a&b <c> ü"),
        ("x<script>evil()</script><style>p{}</style>y", "xy"),
        ("x<svg><text>no</text></svg>y", "xy"),
        ("<title>T</title><body>B", "T\n\nB"),
        ('<a href="../c?d=1">link</a>', "link (https://example.org/c?d=1)"),
        ('<a href="#top">up</a> <a href="javascript:x()">run</a> <a>none</a>', "up run none"),
        ('<a href="http://[broken">link</a>', "link"),
        ("</div></pre></script>stray", "stray"),
    ],
)
def test_page_becomes_text(html: str, text: str) -> None:
    assert html_to_text(html, BASE) == text


def test_what_the_parser_does_not_understand_costs_only_the_rest() -> None:
    assert html_to_text("<p>kept</p><![<![broken", BASE).startswith("kept")


def test_table_rows_are_lines() -> None:
    html = "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>"

    lines = [line.split() for line in html_to_text(html, BASE).splitlines() if line]

    assert lines == [["a", "b"], ["c", "d"]]
