"""The floors (design, section 6): imports go downwards, Beam stays in pipelines, TensorFlow in dataset and train."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What a module may import of ours: anything on a lower floor, and neighbours only inside one package.
FLOORS = [
    {"t5prep.types", "t5prep.errors"},
    {
        *("hashing", "text", "tokenizer", "modelproto", "ends", "encode", "truncation", "noise", "packing", "chunking"),
        *(
            "metrics",
            "tfrecord",
            "statistics",
            "order",
            "splits",
            "honesty",
            "drawing",
            "unigram",
            "newlines",
            "regular_csv",
        ),
    },
    {
        *(
            "files",
            "formats",
            "sources",
            "manifest",
            "caches",
            "sample",
            "tokenizer_files",
            "blocks",
            "pairs",
            "progress",
        ),
        *("output", "verify", "inspection", "gcs", "resumable", "upload", "bucket", "storage", "tokenizer_directory"),
        *("places", "engines", "claims", "budget", "kept"),
        *("text_columns", "comparison", "nearby"),
    },
    {
        *("task", "tasks", "settings", "tokenizing", "records", "placing", "arranging", "answers", "gathering"),
        *("planning", "assembling", "corpus", "dataset", "limiting", "cutting"),
        *("train.config", "train.model", "train.optimizer", "train.checkpoint"),
    },
    {"pipelines", "train", "plan", "report", "diff", "doctor"},
    {"cli"},
]


def _modules() -> list[Path]:
    return sorted(path for top in ("t5prep", "pipelines") for path in (ROOT / top).rglob("*.py"))


def _imports(path: Path) -> set[str]:
    """Everything a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_heavy_libraries_stay_where_they_belong(path: Path) -> None:
    name = _name(path)
    tops = {imported.partition(".")[0] for imported in _imports(path)}
    if not name.startswith("pipelines"):
        assert "apache_beam" not in tops
    if not name.startswith(("t5prep.dataset", "t5prep.train")):
        assert "tensorflow" not in tops
    if not name.startswith("t5prep.plan"):
        assert "jax" not in tops


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_preparing_and_training_meet_only_at_the_manifest(path: Path) -> None:
    name, imported = _name(path), _imports(path)
    if name.startswith("pipelines"):
        assert not [one for one in imported if one.startswith("t5prep.train")]
    if name.startswith("t5prep.train"):
        assert not [one for one in imported if one.startswith("pipelines")]
    if not name.startswith(("t5prep.cli", "t5prep.__main__")):
        assert not [one for one in imported if one.startswith("t5prep.cli")]


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_imports_go_downwards(path: Path) -> None:
    floor, package = _floor(_name(path)), _package(_name(path))
    for imported in _imports(path):
        if imported.startswith(("t5prep.", "pipelines")) and _exists(imported) and _package(imported) != package:
            assert _floor(imported) <= floor, f"{_name(path)} (floor {floor}) imports {imported}"


def test_files_stay_short_and_are_named_after_their_idea() -> None:
    long = {_name(path): lines for path in _modules() if (lines := len(path.read_text().splitlines())) > 300}
    assert not long
    assert not [
        path for path in _modules() if path.stem in ("utils", "util", "helpers", "common", "misc", "base", "manager")
    ]


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _exists(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _floor(name: str) -> int:
    """The floor of a module by the longest entry that fits; a module that no floor names is a failure, not a guess."""
    short = name.removeprefix("t5prep.")
    if short in ("t5prep", "__main__"):
        return len(FLOORS) if short == "__main__" else 0
    known = {entry.removeprefix("t5prep."): floor for floor, entries in enumerate(FLOORS) for entry in entries}
    parts = short.split(".")
    for size in range(len(parts), 0, -1):
        if (floor := known.get(".".join(parts[:size]))) is not None:
            return floor
    raise AssertionError(f"{name} stands on no floor: give it one in tests/test_layers.py")
