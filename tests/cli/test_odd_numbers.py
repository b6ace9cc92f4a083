"""Numbers and terminals as nobody has them are no traceback."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from raised import refused
from small_corpora import prepared, questions, write_csv

from t5prep.cli import main

HUGE = "9" * 23


def test_inspect_takes_any_number_of_records_on_any_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    prepared(write_csv(tmp_path / "rows.csv", questions(6)), data, tokenizer="sample:", splits={"train": 1.0})
    monkeypatch.setenv("COLUMNS", "1")
    result = CliRunner().invoke(main, ["inspect", str(data), "-n", HUGE])
    assert (result.exit_code, result.stdout.count("── ")) == (0, 6)


def float_options(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each option of a command and its subcommands that takes a number with a fraction."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from float_options(command.get_command(context, name), *names, name)
    else:
        of_float = (click.types.FloatParamType, click.FloatRange)
        yield from ((*names, parameter.opts[0]) for parameter in command.params if isinstance(parameter.type, of_float))


# What each command needs before it looks at such an option. --temperature and --top-p are looked at with --sample.
NEEDS = {
    "prepare text2text": "--source sample: --tokenizer sample: --inputs-column Body --targets-column Y --dedup near",
    "tokenizer train": "--source sample: --column Body",
    "plan": "--model t5-small --batch 8 --input-length 32 --target-length 8 --tpu v5e-1",
    "eval": "--model nowhere --beams 2",
    "predict": "sample: --model nowhere --beams 2",
}


@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
@pytest.mark.parametrize("words", [*float_options(main)], ids=" ".join)
def test_no_option_is_a_number_that_is_none(words: tuple[str, ...], value: str, tmp_path: Path) -> None:
    *names, option = words
    needed = NEEDS.get(" ".join(names), "--source sample: --tokenizer sample: --dedup near").split()
    if option in ("--temperature", "--top-p"):
        needed = [*needed[:-2], "--sample"]
    out = [f"--out={tmp_path / 'out'}"] if names[0] in ("prepare", "tokenizer", "predict") else []
    result = CliRunner().invoke(main, [*names, *needed, *out, option, value])
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert f"{option} " in result.stderr
    assert " [option." in result.stderr


def test_a_seed_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    words = ["tokenizer", "train", "--source", "sample:", "--column", "Body", "--out", str(tmp_path / "out")]
    refused("option.out-of-range", f"--seed {HUGE}", command=[*words, "--seed", HUGE])
