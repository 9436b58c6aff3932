"""Which module may import which, checked on syntax trees: nothing is imported or run."""

import ast
import graphlib
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

# Which rooms each room may import, besides the room itself.
ALLOWED_ROOMS: dict[str, frozenset[str]] = {
    "api": frozenset({"shared"}),
    "workers": frozenset({"shared"}),
    "cli": frozenset({"shared"}),
    "demo": frozenset(),
    "shared": frozenset(),
}
# Rooms that no other may import at all.
OWN_NAMES = frozenset({*ALLOWED_ROOMS, "tests"})

# Inside workers, from the outside in: each may import its own level and those after it.
WORKER_LEVELS = (
    frozenset({"workers.app"}),
    frozenset({"workers.tasks"}),
    frozenset({"workers.runtime", "workers.react", "workers.dag"}),
    frozenset({"workers.context", "workers.tools", "workers.model"}),
)
SHAPELESS_NAMES = frozenset({"utils", "util", "common", "helpers", "misc"})


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target, as one module sees it."""

    module: str
    target: str
    line: int
    is_relative: bool
    is_inside_function: bool

    @property
    def is_own_code(self) -> bool:
        """Whether the target is the project's."""
        return self.is_relative or _room(self.target) in OWN_NAMES

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def check(root: Path, dependencies: Collection[str]) -> list[str]:
    """Return one sentence per broken rule in the rooms below root; empty if there is none.

    dependencies: names that no module or package at the top of a room may have.
    """
    modules = find_modules(root)
    imports = [found for name, path in modules.items() for found in _read(name, path, modules)]
    own = [found for found in imports if found.is_own_code]
    return [
        *(f"{found}: relative" for found in own if found.is_relative),
        *(f"{found} inside a function" for found in own if found.is_inside_function),
        *(f"{found}: wrong arrow" for found in own if not _is_arrow_allowed(found)),
        *_check_cycles(modules, own),
        *_check_names(modules, dependencies),
    ]


def find_modules(root: Path) -> dict[str, Path]:
    """Return the rooms' modules by dotted name; a package goes by its own name."""
    modules = {}
    for room in ALLOWED_ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = path
    return modules


def read_dependencies(pyproject: Path) -> frozenset[str]:
    """Return the import names of the project's dependencies and of the standard library."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    names = (re.split(r"[^\w-]", line, maxsplit=1)[0] for line in project["dependencies"])
    return frozenset({name.replace("-", "_") for name in names} | sys.stdlib_module_names)


def _read(name: str, path: Path, modules: Collection[str]) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        for target, is_relative in _targets(node, modules):
            yield Import(name, target, getattr(node, "lineno", 0), is_relative, id(node) in inside)


def _targets(node: ast.AST, modules: Collection[str]) -> list[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        return [(alias.name, False) for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    source = node.module or ""
    members = [f"{source}.{alias.name}" for alias in node.names]
    # `from package import module` is an arrow to the module, not to the package.
    found = [member if member in modules else source for member in members]
    return [(target, node.level > 0) for target in dict.fromkeys(found)]


def _is_arrow_allowed(found: Import) -> bool:
    if found.is_relative:
        return True  # said already
    source, target = _room(found.module), _room(found.target)
    if source != target:
        return target in ALLOWED_ROOMS[source]
    return source != "workers" or _is_inward(found.module, found.target)


def _is_inward(module: str, target: str) -> bool:
    if target == "workers.app":
        return False
    if target == "workers.tasks":
        return module == "workers.app"
    levels = [_worker_level(name) for name in (module, target)]
    return None in levels or levels == sorted(level for level in levels if level is not None)


def _worker_level(module: str) -> int | None:
    part = ".".join(module.split(".")[:2])
    return next((level for level, names in enumerate(WORKER_LEVELS) if part in names), None)


def _check_cycles(modules: Collection[str], imports: Collection[Import]) -> list[str]:
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for found in imports:
        if found.target in modules:
            graph[found.module].add(found.target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [f"cycle: {' <- '.join(error.args[1])}"]
    return []


def _check_names(modules: Collection[str], dependencies: Collection[str]) -> list[str]:
    broken = []
    for module in modules:
        parts = module.split(".")
        if parts[-1] in SHAPELESS_NAMES:
            broken.append(f"{module}: name the noun")
        if len(parts) > 1 and parts[1] in dependencies:
            broken.append(f"{module}: named like a dependency")
    return broken


def _room(module: str) -> str:
    return module.partition(".")[0]
