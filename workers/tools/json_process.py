"""One JMESPath query in a process of its own: `python json_process.py < request`.

A short expression can ask for more time and memory than there is, so the process has limits.
Nothing of the project is imported: it starts in a few hundredths of a second.
"""

import contextlib
import json
import resource
import sys

import jmespath
from jmespath.exceptions import JMESPathError

MAX_CPU_S = 3
MAX_MEMORY_BYTES = 512 * 1024 * 1024
# More than a tool result may hold.
MAX_RESULT_CHARS = 60_000


def main() -> None:
    """Read `{"expression", "text"}`, write `{"result"}` or `{"error"}`; die at the limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    # Not every system lets memory be limited; time is limited anyway.
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    request = json.load(sys.stdin)
    json.dump(_answer(request["expression"], request["text"]), sys.stdout)


def _answer(expression: str, text: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except ValueError as error:
        return {"error": f"The text is no JSON: {error}"}
    try:
        found = jmespath.search(expression, document)
    except JMESPathError as error:
        return {"error": f"The expression is wrong: {error}"}
    return {"result": json.dumps(found, ensure_ascii=False)[:MAX_RESULT_CHARS]}


if __name__ == "__main__":
    main()
