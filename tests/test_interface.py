"""`import t5prep` is light, gives what the README uses, and folders of the same names stay folders."""

import inspect
import logging
import os
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from raised import raises

import t5prep
from t5prep.planning import compiled
from t5prep.planning.compiled import Compiled

FUNCTIONS = [name for name in t5prep.__all__ if name != "T5prepError"]
HEAVY = "'apache_beam', 'tensorflow', 'jax', 'numpy', 'pyarrow', 'click', 'transformers', 'requests'"


def test_importing_it_loads_nothing_heavy_and_changes_no_signal_handler() -> None:
    """Also where the program that imports it has the name of the command."""
    code = (
        "import signal, sys; sys.argv[0] = '/bin/t5prep'; before = [signal.getsignal(n) for n in signal.valid_signals()]; "
        f"import t5prep; dir(t5prep); print(sorted(set(sys.modules) & {{{HEAVY}}})); "
        "t5prep.T5prepError; print(before == [signal.getsignal(n) for n in signal.valid_signals()])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\nTrue\n"


def test_it_is_found_in_the_folder_above_a_clone(tmp_path: Path) -> None:
    """A clone is a folder of its name, which Python would take for a package without files."""
    (tmp_path / "t5prep").mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    code = "import t5prep, pipelines; print(t5prep.__version__)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.stdout == f"{t5prep.__version__}\n", f"install t5prep again: {ran.stderr}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes_gives_and_raises(name: str) -> None:
    function = getattr(t5prep, name)
    text = inspect.getdoc(function) or ""
    for part in ("Args:", "Returns:", "Raises:", "Example:"):
        assert f"\n{part}\n" in text, f"{name} has no {part}"
    documented = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    for parameter in inspect.signature(function).parameters.values():
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        assert f"    {stars}{parameter.name}: " in documented, (name, parameter.name)
        assert parameter.annotation is not parameter.empty
    assert inspect.signature(getattr(t5prep, name)) == inspect.signature(function)


def test_a_public_name_is_its_function_whatever_was_imported_first() -> None:
    """An imported module becomes an attribute of its package, so none may have the name of a function."""
    assert not {module.name for module in pkgutil.iter_modules(t5prep.__path__)} & {*FUNCTIONS}
    assert all(inspect.isfunction(getattr(t5prep, name)) for name in FUNCTIONS)


def test_preparing_leaves_the_programs_own_log_as_it_was(tmp_path: Path) -> None:
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    try:
        t5prep.prepare("so_quality", source="sample:", tokenizer="sample:", out=tmp_path / "out", limit=9, workers=0)
        assert root.level == logging.INFO
    finally:
        root.setLevel(level)


def test_the_error_and_unknown_names() -> None:
    from t5prep.errors import T5prepError

    assert t5prep.T5prepError is T5prepError
    assert set(t5prep.__all__) <= set(dir(t5prep))
    with pytest.raises(AttributeError, match="no attribute 'prepair'"):
        _ = t5prep.prepair  # type: ignore[attr-defined]


def _example(name: str) -> str:
    """Return the example of a public function's docstring."""
    return textwrap.dedent((inspect.getdoc(getattr(t5prep, name)) or "").partition("\nExample:\n")[2]) + "\n"


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_examples_of_preparing_run(work_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(_example("prepare") + _example("load"), {"t5prep": t5prep})
    assert capsys.readouterr().out.splitlines()[-1] == "3615"
    assert (work_folder / "data" / "sample" / "manifest.json").exists()


def test_choices_of_preparing_are_those_of_the_command_line(work_folder: Path) -> None:
    Path("mine.csv").write_text("q,a\n" + "".join(f"why {n},because {n}\n" for n in range(20)))
    choices = {"inputs_column": "q", "targets_column": "a", "splits": "train=1.0", "input_length": 16, "shards": "auto"}
    manifest = t5prep.prepare("text2text", source="mine.csv", tokenizer="sample:", out="data", workers=0, **choices)
    assert manifest.splits["train"].records == 20
    assert manifest == t5prep.load("data")
    with raises(t5prep.T5prepError, "output.different-settings", "data"):
        t5prep.prepare(
            "text2text", source="mine.csv", tokenizer="sample:", out="data", workers=0, **{**choices, "input_length": 8}
        )
    with raises(t5prep.T5prepError, "option.unknown", "inputs_colum", "inputs_column"):
        t5prep.prepare(
            "text2text", source="mine.csv", tokenizer="sample:", out="b", inputs_colum="q", targets_column="a"
        )
    with raises(t5prep.T5prepError, "option.missing", "text2text"):
        t5prep.prepare("text2text", tokenizer="sample:", out="b", inputs_column="q", targets_column="a")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"seed": 1.5}, ("option.malformed", "--seed", "1.5")),
        ({"seed": "7"}, ("option.malformed", "--seed", "7")),
        ({"masks": 1}, ("option.malformed", "--masks", "1")),
        ({"encoding": 8}, ("option.malformed", "--encoding", "8")),
        ({"filter": 3}, ("option.malformed", "--filter", "3")),
        ({"protect": [3]}, ("option.malformed", "--protect", "[3]")),
        ({"splits": {"train": 0.5}}, ("split.invalid-shares", "0.5")),
        ({"splits": {"train": 1.5, "validation": -0.5}}, ("option.malformed",)),
        ({"splits": {"../../train": 1.0}}, ("option.malformed",)),
        ({"splits": ["train"]}, ("option.malformed",)),
        ({"held_out": -1}, ("option.malformed", "-1")),
        ({"held_out": 1}, ("option.out-of-range", '"1"', "2 rows")),
        ({"runner": "prsm"}, ("option.unknown-choice", "--runner", "prsm", "prism")),
        ({"workers": -1}, ("option.out-of-range", "--workers", "-1", "0")),
        ({"memory": 0}, ("option.out-of-range", "0")),
    ],
)
def test_a_choice_of_another_kind_is_a_sentence(work_folder: Path, choices: dict, message: tuple[str, ...]) -> None:
    Path("mine.csv").write_text("q,a\nwhy,because\n")
    choices = {"workers": 0, "inputs_column": "q", "targets_column": "a", **choices}
    with raises(t5prep.T5prepError, *message):
        t5prep.prepare("text2text", source="mine.csv", tokenizer="sample:", out="data", **choices)
    assert not Path("data", "manifest.json").exists()


def test_a_text_alone_is_a_list_of_one_and_numbers_are_pythons(work_folder: Path) -> None:
    Path("mine.csv").write_text("q,a\n" + "".join(f"why {n},because {n}\n" for n in range(20)))
    common_options = {"source": "mine.csv", "tokenizer": "sample:", "out": "data", "workers": 0, "targets_column": "a"}
    short_options = {
        "filter": "words:least=2",
        "protect": "q",
        "seed": np.int64(3),
        "splits": {"train": 0.5, "test": 0.5},
    }
    full_options = {"filter": ["words:least=2"], "protect": ("q",), "seed": 3, "splits": "train=0.5,test=0.5"}
    manifest = t5prep.prepare("text2text", inputs="say {q}", **common_options, **short_options)
    assert manifest.rejected == {}
    assert manifest.settings.options["protect"] == ["q"]
    assert t5prep.prepare("text2text", inputs="say {q}", **common_options, **full_options) == manifest


@pytest.mark.slow
@pytest.mark.usefixtures("lowered_once", "work_folder")
def test_the_examples_of_training_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The examples in the docstrings of the functions that train, as one program, on fewer and shorter rows."""
    examples = "".join(map(_example, ("prepare", "train_batches", "train", "evaluate", "predict")))
    fewer_rows = 'out="data/sample", limit=320, input_length=64'
    exec(examples.replace('out="data/sample"', fewer_rows), {"t5prep": t5prep})
    _, shape, trained, scored, answer = capsys.readouterr().out.splitlines()
    assert shape == "(32, 2)"
    assert trained.startswith("4 ")
    assert len(scored.split()) == 2
    assert len(answer.split()) <= 1


@pytest.mark.extra("libtpu")
@pytest.mark.usefixtures("work_folder")
def test_the_example_of_planning_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The example in the docstring of `plan`, without the compiler, which tests/planning ask."""
    monkeypatch.setattr(compiled, "_run", lambda *_, **__: {})
    monkeypatch.setattr(compiled, "_read", lambda *_, **__: Compiled(True, 1 << 30, flops=1, estimated_cycles=10**6))
    exec(_example("prepare") + _example("plan"), {"t5prep": t5prep})
    assert capsys.readouterr().out.splitlines()[-1].startswith("True ")


def test_rows_to_predict_are_texts_or_dicts() -> None:
    with raises(t5prep.T5prepError, "row.missing"):
        t5prep.predict("no-such-model", [])
    with raises(t5prep.T5prepError, "row.wrong-type", "int"):
        t5prep.predict("no-such-model", [1, 2])  # type: ignore[list-item]
