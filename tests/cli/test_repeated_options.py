"""An option that may be given once and is given twice is an error, in every command; --source of prepare takes several."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from raised import assert_error, raises
from small_corpora import by_id, bytes_of

import t5prep
from t5prep.cli import COMMANDS, main
from t5prep.errors import T5prepError
from t5prep.preparation.source_rows import pinned

OPTIONS = ["--inputs-column", "text", "--targets-column", "label", "--tokenizer", "sample:", "--workers", "1"]


def all_commands(
    group: click.Group, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[list[str], click.Command]]:
    """Yield the words of each command below a group, and the command."""
    for name in COMMANDS if not path else group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            inner = click.Context(command, parent=context, info_name=name)
            subcommands = list(all_commands(command, inner, (*path, name)))
            yield from subcommands if path or name != "prepare" else subcommands[:2]
        else:
            yield [*path, name], command


def once_options() -> list[tuple[list[str], click.Option]]:
    """Return each option of each command that may be given once."""
    return [
        (words, option)
        for words, command in all_commands(main, click.Context(main), ())
        for option in command.params
        if isinstance(option, click.Option) and not (option.multiple or option.count or option.is_eager)
    ]


def test_every_option_that_comes_twice_is_an_error() -> None:
    options = once_options()
    assert len(options) > 100
    for words, option in options:
        name = max(option.opts, key=len)
        option_words = [name] if option.is_flag else [name, "1"]
        result = CliRunner().invoke(main, [*words, *option_words, *option_words])
        assert result.exit_code == 2, (words, name)
        assert_error(result.stderr, "option.repeated", f"{name} ", " 2 ")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with tables, two of which have one name."""
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        for name in ("train", "test", folder):
            rows = "".join(f"{folder} {name} {row},good\n" for row in range(3))
            (tmp_path / folder / f"{name}.csv").write_text(f"text,label\n{rows}")
    return tmp_path


def run(*words: object) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    result = CliRunner().invoke(main, list(map(str, words)))
    return result.exit_code, result.output


def test_several_sources_are_one(tables: Path) -> None:
    sources = [tables / "x" / "x.csv", tables / "y" / "y.csv"]
    code, output = run(
        "prepare", "text2text", "--source", sources[0], "--source", sources[1], *OPTIONS, "--out", tables / "a"
    )
    assert code == 0, output
    assert sorted(by_id(tables / "a")) == [f"{name}.csv:{row}" for name in "xy" for row in (1, 2, 3)]
    assert t5prep.why("y.csv:2", tables / "a")["source"]["file"] == "y.csv"
    reordered_manifest = t5prep.prepare("text2text", source=list(reversed(sources)), out=tables / "b", tokenizer="sample:",
                           inputs_column="text", targets_column="label", workers=0)  # fmt: skip
    assert reordered_manifest.splits == t5prep.load(tables / "a").splits
    shards = [name for name in bytes_of(tables / "a") if name.endswith(".tfrecord")]
    assert all(bytes_of(tables / "a")[name] == bytes_of(tables / "b")[name] for name in shards)


def test_files_of_one_name_are_told_apart_and_names_tell_splits(tables: Path) -> None:
    for name in "xy":
        (tables / name / f"{name}.csv").unlink()
    manifest = t5prep.prepare("text2text", source=[tables / "x", tables / "y"], out=tables / "a", tokenizer="sample:",
                          inputs_column="text", targets_column="label", workers=0)  # fmt: skip
    assert [file.name for file in manifest.source.files] == ["1/test.csv", "1/train.csv", "2/test.csv", "2/train.csv"]
    assert {name: split.records for name, split in manifest.splits.items()} == {"test": 6, "train": 6}
    shutil.rmtree(tables / "a")


def test_sources_of_different_formats_are_all_read(tables: Path) -> None:
    for folder in ("x", "y"):
        for name in ("train", "test"):
            (tables / folder / f"{name}.csv").unlink()
    (tables / "y" / "z.csv").write_text((tables / "y" / "y.csv").read_text())
    (tables / "x" / "x.csv").rename(tables / "x.csv")
    (tables / "x" / "x.jsonl").write_text('{"text": "a line", "label": "good"}\n' * 2)
    manifest = t5prep.prepare("text2text", source=[tables / "x", tables / "y"], out=tables / "a", tokenizer="sample:",
                          inputs_column="text", targets_column="label", workers=0)  # fmt: skip
    assert [file.name for file in manifest.source.files] == ["x.jsonl", "y.csv", "z.csv"]


def test_a_source_that_is_given_twice_is_refused(tables: Path) -> None:
    source = str(tables / "x" / "x.csv")
    with raises(T5prepError, "option.repeated"):
        t5prep.prepare(
            "text2text", source=[source, source], out=tables / "a", tokenizer="sample:", inputs_column="text"
        )
    with raises(T5prepError, "source.mixed-stdin"):
        t5prep.prepare("text2text", source=[source, "-"], out=tables / "a", tokenizer="sample:", inputs_column="text")


def test_several_sources_are_pinned_each() -> None:
    joined = t5prep.dataset.manifest.Source("hf:a/b#c + x.csv", "0123 + ", [], "", "")
    assert pinned(joined) == "hf:a/b@0123#c + x.csv"


def test_a_glob_without_quotes_is_not_an_option_of_beam(tables: Path) -> None:
    files = sorted((tables / "x").iterdir())
    code, output = run("prepare", "text2text", "--source", *files, *OPTIONS, "--out", tables / "a")
    assert code == 2
    assert_error(output, "option.unexpected-argument", files[1].name, '--source "*.csv"')
    code, output = run(
        "prepare", "text2text", "--source", files[0], *OPTIONS, "--out", tables / "a", "--", "--project=p"
    )
    assert code == 1
    assert_error(output, "option.inapplicable", "--project=p")
