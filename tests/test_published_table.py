"""The table of docs/published-systems.md: each command of its second column runs, in its order, on small data."""

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import encoders
import published_models
import pytest
import readme
from click.testing import CliRunner
from servers.corpora import publish
from servers.internet import Internet

from t5prep.cli import main
from t5prep.dataset import manifest
from t5prep.tasks import registry
from t5prep.training.model.architecture import EncoderConfig
from t5prep.training.model.weights import random_weights, save_weights

PAGE = (readme.ROOT / "docs" / "published-systems.md").read_text(encoding="utf-8")
HEADER = "| its README | here | difference and reason |"
# The systems of the table, and how many commands or lines of its README stand there.
SYSTEMS = {
    "tutorial-t5-fine-tune": 5,
    "coling22-benchmark-for-causal-question-answering": 4,
    "t5x_diacritics": 5,
    "t5-flax-gcp": 6,
    "ttt": 8,
}
# What a test adds, so that a command is done in seconds.
SHORT = ("--input-length", "32", "--workers", "1")
ONE_STEP = [
    word
    for setting in (
        "steps=1",
        "warmup=0",
        "eval_every=1",
        "save_every=1",
        "dropout=0",
        "batch=8",
        "eval_batch=8",
        "accumulate=1",
    )
    for word in ("--set", setting)
]
QUICK = {
    "prepare": SHORT,
    "tokenizer": ("--vocab-size", "200"),
    "train": ONE_STEP,
    "eval": ("--max-length", "4"),
}
# Texts whose target follows the input need room for both; generated targets are short here.
LENGTHS = {"diacritics_ro": ("--input-length", "96", "--target-length", "96"), "so_quality": (), "sst2": ()}
LENGTHS |= {"causal_qa": ("--target-length", "16"), "translate_en_ro": ("--target-length", "16")}
# Runs with another size of a model: here it has the same files as that of an earlier run, and the same options.
OTHER_SIZES = {"runs/sst2-large", "runs/sst2-bert-large"}
# Models that tests/published_models.py does not have, and one of the same files that it has.
LIKE = {"google-t5/t5-small": "google-t5/t5-base", "google-t5/t5-large": "google-t5/t5-base"}
BERTS = ("google-bert/bert-base-uncased", "google-bert/bert-large-uncased")
BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
BERT |= {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
}


class Line(NamedTuple):
    """A line of the table."""

    theirs: str
    ours: tuple[str, ...]
    reason: str


def _table() -> dict[str, list[Line]]:
    """Return the lines of each system."""
    systems: dict[str, list[Line]] = {}
    lines = PAGE[PAGE.index(HEADER) :].split("\n\n", 1)[0].splitlines()[2:]
    for line in lines:
        theirs, ours, reason = (cell.strip() for cell in line.split("|")[1:-1])
        if heading := re.fullmatch(r"\*\*([\w-]+)\*\* \((.+)\)", theirs):
            assert re.search(r"README at [0-9a-f]{7}$", heading[2]), line
            system = systems.setdefault(heading[1], [])
        else:
            system.append(Line(theirs, tuple(re.findall(r"`([^`]+)`", ours)), reason))
            assert system[-1].ours or (ours == "the line above" and len(system) > 1), line
    return systems


TABLE = _table()


def test_the_table_is_whole() -> None:
    assert {name: len(lines) for name, lines in TABLE.items()} == SYSTEMS
    for name, lines in TABLE.items():
        assert f"]({_address(name)})" in PAGE
        for line in lines:
            assert line.theirs, line
            assert len(line.reason) > 40, line
    tasks = {
        shlex.split(command)[2]
        for lines in TABLE.values()
        for line in lines
        for command in line.ours
        if "prepare" in command
    }
    assert tasks == set(registry.names()) - {"text2text", "common_gen", "summarize", "ul2", "masked_language"}
    assert "not on this page: `common_gen` and `summarize`" in PAGE


def _address(name: str) -> str:
    (address,) = re.findall(rf"\| \[{name}\]\((https://github\.com/[\w-]+/{name})\)", PAGE)
    return address


def test_every_command_is_spelled_right() -> None:
    """What `pip` installs are extras that setup.py has; `t5prep` reads its options as always."""
    extras = readme.extras()
    for line in (line for lines in TABLE.values() for line in lines):
        for command in line.ours:
            program, *arguments = shlex.split(command)
            if program == "t5prep":
                readme.parse(main, arguments)
            else:
                match = re.fullmatch(r"pip install -e '\.\[(\w+)\]' -c \.ci/pins\.txt", command)
                assert match, command
                assert match[1] in extras, command


@pytest.fixture
def published(internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Internet:
    """Every corpus and model that the table names, small; a folder to work in, and a login to the Hub."""
    publish(internet)
    for name, like in {**{name: name for name in published_models.NAMES}, **LIKE}.items():
        internet.hub.models[name] = published_models.files(like, tmp_path / "models" / name)
    # One folder for both, because their vocabulary is the same: drawn anew it would have other ties.
    folder = encoders.bert(tmp_path / "models" / "bert")
    config = BERT | {"vocab_size": len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())}
    (folder / "config.json").write_text(json.dumps(config))
    shape = EncoderConfig.from_json(config)
    save_weights(folder, shape, random_weights(shape))
    internet.hub.models |= {name: {path.name: path.read_bytes() for path in folder.iterdir()} for name in BERTS}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("notes.txt").write_text(
        "".join(f"Line {n} of the notes says more than line {n - 1} did.\n" for n in range(60))
    )
    monkeypatch.setenv("HF_TOKEN", internet.hub.token)
    return internet


def _run(command: str, *options: str) -> str:
    """Run a command of the table, and return what it prints."""
    result = CliRunner().invoke(main, readme.override(shlex.split(command)[1:], *options), catch_exceptions=False)
    assert result.exit_code == 0, (command, result.output[-3000:])
    return result.output


def _of(system: str, *commands: str) -> list[str]:
    """Return a system's commands of t5prep, those named or all."""
    documented = [command for line in TABLE[system] for command in line.ours if command.startswith("t5prep ")]
    return [command for command in documented if not commands or shlex.split(command)[1] in commands]


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_it_prepares(system: str, published: Internet) -> None:
    """The commands as they are, but for the size of a vocabulary that is trained on sixty texts."""
    for command in _of(system, "tokenizer", "prepare", "inspect"):
        words = shlex.split(command)
        _run(command, *(QUICK["tokenizer"] if words[1] == "tokenizer" else ()))
        if words[1] == "prepare":
            dataset = manifest.load(words[words.index("--out") + 1])
            assert dataset.splits["train"].records
            assert dataset.settings.task == words[2]


@pytest.mark.extra("fake-gcs-server")
def test_the_upload_arrives(published: Internet, bucket: str) -> None:
    prepared, uploaded = _of("tutorial-t5-fine-tune", "prepare", "upload")
    _run(prepared)
    _run(uploaded.replace("gs://BUCKET", bucket))
    uploaded_dataset = manifest.load(f"{bucket}/so_quality")
    assert uploaded_dataset.digest == manifest.load("data/so_quality").digest


@pytest.mark.usefixtures("lowered_once")
@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_command_runs(system: str, published: Internet) -> None:
    """From the corpus to the exported model, each line after the one before it; `upload` has a test of its own."""
    runs = set()
    for command in _of(system):
        words = shlex.split(command)
        if words[1] == "upload" or OTHER_SIZES & {*words}:
            continue
        of_task = LENGTHS.get(words[2], ()) if words[1] == "prepare" else ()
        generates_nothing = words[1] == "eval" and "bert" in command
        _run(command, *(() if generates_nothing else QUICK.get(words[1], ())), *of_task)
        if words[1] == "train":
            runs.add(out := words[words.index("--out") + 1])
            steps = [json.loads(line) for line in Path(out, "metrics.jsonl").read_text().splitlines()]
            assert [line["step"] for line in steps if "loss" in line] == [
                1
            ]  # once, also where the command stands twice
            for pushed in (word.removeprefix("push=") for word in words if word.startswith("push=")):
                files = published.hub.models[pushed]
                assert {"model.safetensors", "config.json", "spiece.model", "README.md"} <= files.keys()
                assert any(name.startswith("runs/") for name in files)
        if words[1] == "export":
            assert Path(words[words.index("--out") + 1], "model.safetensors").is_file()
        if words[1] == "push":
            files = published.hub.models[words[words.index("--repo") + 1]]
            assert {"config.json", "spiece.model", "README.md"} <= files.keys()
            assert ("model.safetensors" in files) == ("runs/" in command)
    assert runs
