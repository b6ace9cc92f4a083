"""Random settings and damaged runs: whatever is typed or broken, training and scoring answer with a sentence."""

import dataclasses
import json
import random
import shutil
from pathlib import Path

import pytest
import toy_runs
from click.testing import CliRunner
from fuzzed_arguments import ODD, SEED, fault
from raised import raises

from t5prep.errors import UsageError
from t5prep.tokens import loading
from t5prep.training import trainer
from t5prep.training.model.weights import load_config, random_weights
from t5prep.training.run import checkpoints, run
from t5prep.training.settings import train_config
from t5prep.training.settings.train_config import TrainConfig

CASES = 60
# Numbers that are one by their type, and not by their size. Beyond ODD, which has what is not a number at all.
NUMBERS = ["-1", "0", "1e30", "2147483648", "nan", "1,nan"]
# Where things lie is what tests/cli/test_fuzz_cli.py draws; here data and model are good ones.
SETTINGS = [
    field.name for field in dataclasses.fields(TrainConfig) if field.name not in ("data", "model", "out", "tokenizer")
]


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of classes, and a shape to train."""
    toys = tmp_path_factory.mktemp("fuzz")
    toy_runs.classes(toys / "classes")
    toy_runs.shape(toys / "shape")
    return toys


@pytest.fixture
def line(toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A training that ends where its first step would be made."""

    def stop(*_: object) -> None:
        raise UsageError("here the first step would be made", code="option.missing")

    monkeypatch.setattr(trainer, "Signals", stop)
    monkeypatch.setattr(trainer.compiling, "compile_step", toy_runs.uncompiled(stop))  # minutes for hundreds of steps
    settings = ["--set=weights=random", "--set=batch=8", "--set=epochs=1", "--set=tensorboard=false"]
    return [
        "train",
        "--data",
        str(toys / "classes"),
        "--model",
        str(toys / "shape"),
        "--out",
        str(tmp_path / "r"),
        *settings,
    ]


def test_no_setting_ends_in_a_traceback(line: list[str], tmp_path: Path) -> None:
    """Every number in every setting, and anything in two of them."""
    draw, reached = random.Random(SEED), 0
    numeric = [name for name in SETTINGS if not isinstance(getattr(TrainConfig, name, ()), str)]
    cases = [[(name, number)] for name in numeric for number in NUMBERS]
    cases += [[(name, draw.choice(ODD)) for name in draw.sample(SETTINGS, 2)] for _ in range(CASES)]
    for case in cases:
        typed = [*line, *(f"--set={name}={value}" for name, value in case)]
        if any(name == "steps" for name, _ in case):
            typed.remove("--set=epochs=1")
        if wrong := fault(CliRunner(), typed):
            pytest.fail(f"{' '.join(map(ascii, typed))}\n{wrong}", pytrace=False)
        reached += (tmp_path / "r").exists()
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
    assert 20 < reached < len(cases) - 20  # some settings are good ones


DAMAGE = [b"", b"{", b"[]", b"null", b"7\n", b"{}\n", b'{"schema": 1}', b'{"step": "x"}\n', b"\xff\xfe\x00", None]


@pytest.mark.parametrize("name", ["train.json", "config.json", "spiece.model", "metrics.jsonl", "checkpoint.json"])
def test_no_damaged_run_ends_in_a_traceback(name: str, line: list[str], toys: Path, tmp_path: Path) -> None:
    """Each file of a run in its turn: cut, of another kind, or gone (None)."""
    intact_run, out = tmp_path / "whole", tmp_path / "r"
    shape = dataclasses.replace(load_config(toys / "shape"), vocab_size=8192)
    config = train_config.build({"weights": "random", "batch": 8, "steps": 4, "data": ("d",), "model": "m", "out": "o"})
    run.begin(str(intact_run), config=config, shape=shape, tokenizer=loading.load("sample:"), datasets=())
    state = checkpoints.State(
        step=2, config=json.loads(train_config.dumps(config)), data=[], tokenizer="", metric="loss"
    )
    checkpoints.save(str(intact_run), toy_runs.writer(random_weights(shape)), state=state, keep=1)
    (intact_run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    for content in DAMAGE:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(intact_run, out)
        (file,) = out.rglob(name)
        file.unlink() if content is None else file.write_bytes(content)
        for typed in (
            line,
            ["eval", "--model", str(out), "--data", "nowhere"],
            ["export", "--model", str(out), "--out", str(tmp_path / "exported")],
            ["report", str(out), "--out", str(tmp_path / "report.html")],
        ):
            if wrong := fault(CliRunner(), typed):
                pytest.fail(f"{name} holds {content!r}: t5prep {' '.join(typed)}\n{wrong}", pytrace=False)
        shutil.rmtree(tmp_path / "exported", ignore_errors=True)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"null", b"\xff", b'{"model_type": "t5", "d_model": "wide"}', b'{"model_type": "t5", "num_heads": 0}']
)  # fmt: skip
def test_a_damaged_config_is_one_sentence(content: bytes, toys: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with raises(UsageError, "model.invalid-config", "config.json"):
        load_config(tmp_path)
