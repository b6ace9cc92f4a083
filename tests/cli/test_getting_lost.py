"""Where people get lost: what they did is said, with what to type instead."""

import shlex
from pathlib import Path

from click.testing import CliRunner, Result
from preparing import questions, write_csv

from t5prep.cli import main


def prepare(source: object, out: Path) -> Result:
    words = ["prepare", "text2text", "--source", str(source), "--tokenizer", "sample:", "--out", str(out)]
    return CliRunner().invoke(main, [*words, "--workers", "1", "--inputs-column", "Title", "--targets-column", "Y"])


def test_a_place_inside_the_source_is_refused(tmp_path: Path) -> None:
    """The first run worked, and the second read the shards of the first."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_csv(folder / "rows.csv", questions(9))
    for out in (folder / "out", folder):
        result = prepare(folder, out)
        assert (result.exit_code, "lies inside the source" in result.stderr) == (1, True)
    assert [path.name for path in folder.iterdir()] == ["rows.csv"]
    assert prepare(folder, tmp_path / "out").exit_code == 0


def test_a_licence_beside_the_rows_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_csv(folder / "rows.csv", questions(9))
    (folder / "LICENSE").write_text("Do what you like.\n")
    done = prepare(folder, tmp_path / "out")
    assert (done.exit_code, "not read, because they are about the data: LICENSE" in done.stderr) == (0, True)


def test_a_stranger_beside_the_rows_is_named_with_a_glob_that_works(tmp_path: Path) -> None:
    folder = tmp_path / "my corpus"
    (folder / "deep").mkdir(parents=True)
    write_csv(folder / "deep" / "rows.csv", questions(9))
    (folder / "notes").write_text("Do what you like.\n")
    refused = prepare(folder, tmp_path / "out")
    assert refused.exit_code == 1
    assert "the name notes does not say what format it is in" in refused.stderr
    (glob,) = shlex.split(refused.stderr.partition("--source ")[2])
    assert prepare(glob, tmp_path / "out").exit_code == 0


def test_the_next_command_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(9))
    out = tmp_path / "my $(data); dataset"
    (line,) = [line for line in prepare(source, out).stdout.splitlines() if line.startswith("next: ")]
    assert shlex.split(line.removeprefix("next: ")) == ["t5prep", "inspect", str(out)]
