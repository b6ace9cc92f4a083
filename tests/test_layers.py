"""The floors: imports go downwards only, Beam stays in pipelines, TensorFlow in training, jax in training and planning."""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# A folder (or module) imports those before it, never those after it nor itself from below.
FLOORS = (
    *(
        "version",
        "errors",
        "json_values",
        "options",
        "io",
        "_native",
        "sources",
        "reading",
        "tasks",
        "tokens",
        "dataset",
        "preparation",
    ),
    *("pipelines", "training", "planning", "report", "cli"),
)
# Preparing and training meet only at the manifest: these never import those, on whatever floor.
NEVER = {
    "pipelines": {"training", "planning", "report"},
    "training": {"pipelines", "preparation"},
    "planning": {"pipelines", "preparation", "tasks", "reading"},
}
# What training and evaluation need to know of a task is in the manifest; only raw rows are predicted by the task itself.
NEVER_FROM = {"training": ("t5prep.tasks.registry", "t5prep.tasks.task", "t5prep.tasks.corpora")}
MAY = {"t5prep.training.predict.prediction_inputs"}
HEAVY = {"apache_beam": {"pipelines"}, "tensorflow": {"training"}, "jax": {"training", "planning"}}


@functools.cache
def _modules() -> list[Path]:
    return sorted(path for top in ("t5prep", "pipelines") for path in (ROOT / top).rglob("*.py"))


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _floor(name: str) -> str:
    """The folder of a dotted name: `t5prep.training.data.order` is on the floor `training`; the package itself is the roof."""
    parts = name.split(".")
    return parts[0] if parts[0] == "pipelines" else parts[1] if len(parts) > 1 else ""


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """The parts of a file's code that matter here."""
    kinds = (ast.Import, ast.ImportFrom, ast.Attribute, ast.If)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


@functools.cache
def _imports(path: Path) -> list[str]:
    """Everything a file imports when it runs, wherever in it; not what is for type checkers alone."""
    unread = {
        inner
        for node in _nodes(path)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    imports = []
    for node in _nodes(path):
        if isinstance(node, ast.Import) and node not in unread:
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node not in unread:
            imports += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return imports


def _ours(path: Path) -> set[str]:
    """The floors that a file imports from."""
    mine = (name for name in _imports(path) if name.startswith(("t5prep.", "pipelines")))
    return {_floor(name) for name in mine} & set(FLOORS)


def test_heavy_libraries_stay_where_they_belong() -> None:
    for path in _modules():
        tops = {imported.partition(".")[0] for imported in _imports(path)}
        misplaced = {library for library, floors in HEAVY.items() if _floor(_name(path)) not in floors} & tops
        assert not misplaced, f"{_name(path)} imports {misplaced}"


def test_imports_go_downwards() -> None:
    for path in (path for path in _modules() if _floor(_name(path))):
        floor = _floor(_name(path))
        for imported_floor in _ours(path):
            assert FLOORS.index(imported_floor) <= FLOORS.index(floor), (
                f"{_name(path)} imports {imported_floor}, which is above it"
            )
            assert imported_floor not in NEVER.get(floor, ()), f"{_name(path)} imports {imported_floor}"
        of_tasks = {name for name in _imports(path) if name.startswith(NEVER_FROM.get(floor, ("-",)))}
        assert not of_tasks or _name(path) in MAY, f"{_name(path)} imports {of_tasks}"


def test_no_floor_imports_the_roof() -> None:
    """The roof is the package itself, whose functions import every floor."""
    of_roof = [
        f"{_name(path)} imports {alias.name}"
        for path in _modules()
        if _floor(_name(path)) in FLOORS[:-2]
        for node in _nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (alias.name == "t5prep" if isinstance(node, ast.Import) else node.module == "t5prep")
        and alias.name not in FLOORS
    ]
    assert not of_roof


def test_no_imports_go_in_a_circle() -> None:
    paths = {_name(path): path for path in _modules()}
    graph = {
        name: {dependency for dependency in _imports(path) if dependency in paths and dependency != name}
        for name, path in paths.items()
    }
    # A package's own __init__ may gather its modules.
    graph = {
        name: {dependency for dependency in dependencies if not name.startswith(f"{dependency}.")}
        for name, dependencies in graph.items()
    }
    while leaves := [name for name, dependencies in graph.items() if not dependencies & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"these import each other: {sorted(graph)}"


def test_files_are_named_after_their_idea() -> None:
    nothing = ("utils", "util", "helpers", "common", "misc", "base", "manager")
    assert not [path for path in _modules() if path.stem in nothing]


def test_the_layout_is_the_data_flow() -> None:
    folders = {path.name for path in (ROOT / "t5prep").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(FLOORS) - {"version", "errors", "json_values", "_native", "pipelines"} | {"native"}


def _private_names(path: Path) -> Iterator[str]:
    """What a file takes of a dependency that begins with an underscore, and all of jaxlib, which is a part of jax."""
    excluded_packages = {"t5prep", "pipelines", *sys.stdlib_module_names}
    modules: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            aliases = {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            aliases = {alias.asname or alias.name: node.module for alias in node.names}
        else:
            continue
        modules |= {name for name, module in aliases.items() if module.partition(".")[0] not in excluded_packages}
    for name in _imports(path):
        top, *inner = name.split(".")
        if top not in excluded_packages and (top == "jaxlib" or any(part.startswith("_") for part in (top, *inner))):
            yield name
    for node in _nodes(path):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            of = ast.unparse(node.value)
            if of.partition(".")[0] in modules:
                yield f"{of}.{node.attr}"


def test_nothing_private_of_a_dependency_is_used() -> None:
    private = {_name(path): list(_private_names(path)) for path in _modules()}
    assert not {name: names for name, names in private.items() if names}
    assert not [path for path in _modules() if "jax._src" in path.read_text() or "jaxlib." in path.read_text()]
