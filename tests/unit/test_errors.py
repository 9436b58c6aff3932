"""Every fault and every stop, wherever it is defined: all cross process borders."""

import ast
import importlib
import inspect
import pickle
from collections import Counter
from pathlib import Path
from typing import get_type_hints

import pytest

from shared.errors import Stop, TurnmillError
from tests.helpers.import_rules import find_modules

ROOT = Path(__file__).parents[2]
SAMPLES: dict[object, object] = {str: "sample", int: 7, float: 1.5, bool: True}


def base_names(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def import_modules_with_errors() -> None:
    """Import the modules that define subclasses, and no others: entry points read settings."""
    classes = [
        (module, node)
        for module, path in find_modules(ROOT).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    known: set[str] = {TurnmillError.__name__, Stop.__name__}
    while found := {node.name for _, node in classes if base_names(node) & known} - known:
        known |= found
    for module, node in classes:
        if node.name in known:
            importlib.import_module(module)


def subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind] + [leaf for child in kind.__subclasses__() for leaf in subclasses(child)]


import_modules_with_errors()
FAULTS = [kind for kind in subclasses(TurnmillError) if issubclass(kind, TurnmillError)]
ALL = [*FAULTS, *subclasses(Stop)]


def sample_of(hint: object) -> object:
    options = getattr(hint, "__args__", (hint,))
    return next(SAMPLES[option] for option in options if option in SAMPLES)


def make(kind: type[Exception]) -> Exception:
    """Make an error with a value for each thing it can say."""
    if kind.__init__ is Exception.__init__:
        return kind("what happened")
    hints = get_type_hints(kind.__init__)
    names = [name for name in inspect.signature(kind).parameters if name in hints]
    return kind(**{name: sample_of(hints[name]) for name in names})


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_error_survives_pickling_with_all_it_says(kind: type[Exception]) -> None:
    error = make(kind)

    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

    assert type(again) is kind
    assert str(again) == str(error) != ""
    assert again.args == error.args
    assert vars(again) == vars(error)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_error_has_one_sentence_of_its_own(kind: type[Exception]) -> None:
    sentence = (vars(kind)["__doc__"] or "").strip().splitlines()[0]

    assert sentence.endswith(".")


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_sentence_is_the_message_unless_another_is_given(kind: type[TurnmillError]) -> None:
    others = [
        parameter
        for parameter in list(inspect.signature(kind).parameters.values())[1:]
        if parameter.default is parameter.empty
    ]

    assert others == [], "all but the message have defaults"
    assert kind().message == (kind.__doc__ or "").strip().splitlines()[0]
    assert kind("another").message == "another"


def test_codes_tell_all_faults_apart() -> None:
    codes = Counter(kind.code for kind in FAULTS)

    assert [code for code, count in codes.items() if count > 1] == []


def test_stops_are_no_faults() -> None:
    assert not issubclass(Stop, TurnmillError)
    assert {kind.__name__ for kind in subclasses(Stop)} >= {"Cancelled", "HandedOver"}
