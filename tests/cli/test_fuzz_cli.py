"""Random command lines: whatever is typed, the answer is a sentence and the exit code 0, 1 or 2, never a traceback.

Every case follows from SEED and its number. Nothing leaves this process: connections are refused, Beam is not started
(everything before it is), nobody waits.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import click
import damage_kit
import pytest
import random_seeds
from click.testing import CliRunner
from fuzzed_arguments import ODD, SEED, fault
from small_corpora import prepared, questions, write_csv

from t5prep.cli import main
from t5prep.dataset import manifest
from t5prep.errors import UsageError

# `make fuzz` draws fewer for each of its many seeds.
CASES = 40 if random_seeds.ARE_GIVEN else 250
# Not without TensorFlow, and not for random settings: what these do is tested where they live.
NEVER_WELL = ("train", "eval", "predict", "export", "push", "plan")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Paths: two good datasets, and every way of being none; corpora and tokenizers, good and broken."""
    folder = tmp_path_factory.mktemp("fuzz")
    csv = write_csv(folder / "good.csv", questions(12))
    prepared(csv, folder / "good", tokenizer="sample:", input_length=64)
    prepared(csv, folder / "packed", tokenizer="sample:", input_length=64, target_length=8, layout="packed")
    text = (folder / "good" / "manifest.json").read_bytes()
    facts = json.loads(text)
    wrong: dict[str, bytes] = {
        "empty": b"",
        "half": text[: len(text) // 2],
        "binary": bytes(range(256)),
        "list": b"[]",
        "null": b"null",
        "number": b"1e999",
        "deep": b"[" * 100_000,
        "newer": json.dumps({**facts, "schema": manifest.SCHEMA + 1}).encode(),
        "no-splits": json.dumps({key: value for key, value in facts.items() if key != "splits"}).encode(),
        "types": json.dumps({**facts, "splits": 7, "lengths": "x", "tokenizer": None}).encode(),
        "altered": json.dumps({**facts, "created_by": 5, "rejected": {"x": 5}}).encode(),
        "utf16": text.decode().encode("utf-16"),
    }
    for name, content in wrong.items():
        (folder / f"manifest-{name}").mkdir()
        (folder / f"manifest-{name}" / "manifest.json").write_bytes(content)
    for name, change in (
        ("no-shards", "missing"),
        ("cut-shards", "cut"),
        ("swapped-shards", "noise"),
        ("dir-shards", "dir"),
    ):
        (folder / name).mkdir()
        (folder / name / "manifest.json").write_bytes(text)
        for shard in sorted((folder / "good").glob("*.tfrecord-*")):
            content = shard.read_bytes()
            if change == "dir":
                (folder / name / shard.name).mkdir()
            elif change != "missing":
                content = content[: len(content) // 2] if change == "cut" else bytes(len(content))
                (folder / name / shard.name).write_bytes(content)
    sealed = manifest.loads(text, location="here")
    empty = manifest.Manifest(**{**vars(sealed), "splits": {}, "ledger": {}}).sealed()
    (folder / "nothing-in-it").mkdir()
    (folder / "nothing-in-it" / "manifest.json").write_text(empty.dumps())
    (folder / "a-run").mkdir()
    (folder / "a-run" / "train.json").write_text('{"steps": "many"}')
    (folder / "empty").mkdir()
    (folder / "a file.txt").write_text("one line\ntwo lines\n")
    (folder / "broken.csv").write_bytes(b'Id,Title\n1,"never closed\n\xff\xfe\x00')
    (folder / "header.csv").write_text("Id,Title,Body,Y\n")
    (folder / "zero.csv").write_bytes(b"")
    (folder / "noise.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    (folder / "noise.gz").write_bytes(b"\x1f\x8b" + bytes(50))
    (folder / "noise.model").write_bytes(bytes(1000))
    (folder / "lines.jsonl").write_text('{"text": "x", "label": [1, {"a": null}]}\n[]\n7\n{"text": 3}\n')
    (folder / "unreadable.csv").write_text("x\n")
    (folder / "unreadable.csv").chmod(0)
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    return [str(csv), str(csv), str(folder / "good"), *(str(path) for path in sorted(folder.iterdir()))]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No network, no Beam, no compiler, no waiting, no cache of the user's, nothing written where the tests stand."""
    from pipelines import prepare, train_tokenizer

    def stop(*_: object, **__: object) -> None:
        raise UsageError("here Beam would start", code="option.missing")

    with damage_kit.alone(tmp_path):
        monkeypatch.setattr(prepare, "_run", stop)
        monkeypatch.setattr(train_tokenizer, "train", stop)
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        yield


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (subcommand := command.get_command(context, name)) is not None:
                yield from _commands(subcommand, (*path, name))
    else:
        yield path, command


def _value(draw: random.Random, parameter: click.Parameter, places: list[str], well: float) -> str:
    """A value that fits the parameter's type with the chance `well`, else anything at all."""
    kind = parameter.type
    if draw.random() < well:
        if isinstance(kind, click.Choice):
            return str(draw.choice(list(kind.choices)))
        if isinstance(kind, click.types.IntParamType):
            return str(draw.choice([1, 2, 5, 64, 512]))
        if isinstance(kind, click.types.FloatParamType):
            return str(draw.choice([0.1, 1.0]))
        if parameter.name == "tokenizer":
            return "sample:"
        if parameter.name == "out":
            return draw.choice(["out", "deep/er/out", *places])
    return draw.choice(places) if draw.random() < 0.45 else draw.choice(ODD)


def _line(draw: random.Random, commands: list[tuple[tuple[str, ...], click.Command]], places: list[str]) -> list[str]:
    path, command = draw.choice(commands)
    well = 0.0 if path[0] in NEVER_WELL else draw.choice([0.3, 0.9])
    line: list[str] = []
    for parameter in command.params:
        is_included = parameter.required and draw.random() < 0.93
        if not is_included and draw.random() > 0.18:
            continue
        if isinstance(parameter, click.Argument):
            line.append(_value(draw, parameter, places, well))
            continue
        option = draw.choice([*parameter.opts, *parameter.secondary_opts])
        if option in ("-h", "--help"):
            continue
        line.append(option)
        if not getattr(parameter, "is_flag", False) or draw.random() < 0.02:
            line.append(_value(draw, parameter, places, well))
    mangle = draw.random()
    if mangle < 0.03:
        line.insert(draw.randrange(len(line) + 1), draw.choice(ODD))
    elif mangle < 0.06 and line:
        line.pop(draw.randrange(len(line)))
    elif mangle < 0.08:
        path = (*path[:-1], draw.choice([path[-1][:-1], path[-1].upper(), *ODD]))
    elif mangle < 0.10:
        line.append(draw.choice(["--help", "-h", "--version", "--jsn"]))
    return [*path, *line]


@pytest.mark.fuzz
@pytest.mark.parametrize("number", random_seeds.seeds(1))
def test_no_command_line_ends_in_a_traceback(number: int, places: list[str]) -> None:
    # explore answers until it is stopped: its own tests start it.
    commands = [command for command in _commands(main) if command[0] != ("explore",)]
    draw = random.Random(f"{SEED} {number}")
    runner = CliRunner()
    for case in range(CASES):
        line = _line(draw, commands, places)
        if wrong := fault(runner, line):
            pytest.fail(f"round {number}, case {case}: t5prep {' '.join(map(ascii, line))}\n{wrong}", pytrace=False)


def _leaves() -> list[tuple[tuple[str, ...], click.Command]]:
    return list(_commands(main))


@pytest.mark.parametrize(
    ("path", "command"), _leaves(), ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_every_command_has_help_with_an_example_and_json(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example:\n  " in result.output.replace("    ", "  ")
    if path not in (("completion",), ("cache", "clear"), ("explore",)):  # the last one answers over HTTP
        assert "--json" in {option for parameter in command.params for option in parameter.opts}
