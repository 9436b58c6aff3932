"""Print how well requests are measured; leave with 1 if worse than said.

Without a file the conversations in `tests/data` are taken, and docs/context.md must show what they
give; `--write` has it show that.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.eval.context import CALLS, MAX_RATIO, MIN_RATIO, Result, measure
from tests.eval.referees import load_referees
from tests.helpers.data import DATA, load_chats

PAGE = Path(__file__).parents[2] / "docs" / "context.md"
BEGIN, END = "<!-- make eval-context -->\n", "<!-- end -->"


def main() -> int:
    """Measure, print, and compare with the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.eval", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="chats in the format of tests/data")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    if given.files and given.write:
        parser.error("--write is for the conversations in tests/data")
    results = asyncio.run(_measure_all(given.files or sorted(DATA.glob("*.jsonl"))))
    table = render(results)
    sys.stdout.write(table)
    failed = [result for result in results if not result.holds]
    for result in failed:
        sys.stderr.write(
            f"{result.data}, {result.tokenizer}: after {CALLS} calls {result.after}, chats by"
            f" themselves {result.apart}: not within {MIN_RATIO:g} … {MAX_RATIO:g}\n",
        )
    is_stale = False
    if not given.files:
        page = PAGE.read_text(encoding="utf-8")
        current = replace_table(page, table)
        if given.write:
            PAGE.write_text(current, encoding="utf-8")
        elif current != page:
            is_stale = True
            sys.stderr.write('docs/context.md shows another table: run with ARGS="--write"\n')
    return 1 if failed or is_stale else 0


async def _measure_all(files: Sequence[Path]) -> list[Result]:
    referees = load_referees()
    return [
        await measure(file.stem.replace("_", " "), load_chats(file), referee)
        for file in files
        for referee in referees
    ]


def render(results: Sequence[Result]) -> str:
    """Return results as a table in Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in _rows(results))


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    yield (
        "conversations",
        "tokenizer",
        "requests",
        "plain estimate",
        "unknown model",
        f"after {CALLS} calls",
        "chats by themselves",
    )
    yield ("---", "---", "---:", *["---"] * 4)
    for result in results:
        spreads = (result.plain, result.before, result.after, result.apart)
        yield (result.data, result.tokenizer, str(result.requests), *map(str, spreads))


def replace_table(page: str, table: str) -> str:
    """Return the page with the table between its marks. Raises ValueError if they are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} lacks the marks {BEGIN.strip()} and {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
