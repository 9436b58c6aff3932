"""A JMESPath search, in a `LimitedProcess`.

An expression of a few hundred characters can double its result a hundred times.
"""

import json

import jmespath
from jmespath.exceptions import JMESPathError

from workers.tools.limits import RequestError, serve


def search(expression: str, text: str) -> str:
    """Return what an expression finds in JSON text, as JSON. Raises RequestError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise RequestError(f"The text is no JSON: {error}") from error
    try:
        found = jmespath.search(expression, document)
    except JMESPathError as error:
        raise RequestError(f"The expression is wrong: {error}") from error
    return json.dumps(found, ensure_ascii=False)


if __name__ == "__main__":
    serve(lambda request: search(request["expression"], request["text"]))
