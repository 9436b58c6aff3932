"""`docs/settings.md`, written from the settings class: `python -m shared.settings_page`."""

import ast
import inspect
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

from pydantic_core import PydanticUndefined

from shared.settings import Settings

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
HEAD = """\
# Settings

Read from the environment when a process starts. A wrong value is refused with a sentence that names
the variable; a `TURNMILL_` variable that no setting reads is reported. Names that end in `_S` are
seconds.

| variable | default | |
|---|---|---|
"""


def render() -> str:
    """Return the page."""
    sentences = _sentences()
    rows = []
    for name, field in Settings.model_fields.items():
        shown = "" if field.default in (None, "", PydanticUndefined) else f"`{field.default}`"
        rows.append(f"| `{field.alias}` | {shown} | {sentences[name]} |\n")
    return HEAD + "".join(rows)


def _sentences() -> dict[str, str]:
    """Return the sentence under each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(Settings))).body[0]
    statements = body.body if isinstance(body, ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, after in pairwise(statements):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split()).replace("|", "\\|")
            case _:
                continue
    return found


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} written\n")
