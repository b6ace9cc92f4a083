"""The tiny recipe on the built-in sample, as `make train` runs it: what it must reach, and what PyTorch makes of its export."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import preparing
import pytest
from click.testing import CliRunner

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep import cli
from t5prep.train import config as configs
from t5prep.train import export, trainer

pytestmark = pytest.mark.slow

# In a process of its own: torch and TensorFlow each bring an LLVM, and the two end the process where both are loaded.
THEIRS = """
import json, sys
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1]).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
given = json.load(open(sys.argv[2]))
answers = {}
for first in range(0, len(given), 32):
    some = given[first : first + 32]
    ids = torch.tensor([row["input_ids"] for row in some])
    with torch.no_grad():
        said = model.generate(ids, attention_mask=(ids != 0).long())
    answers |= dict(zip((row["id"] for row in some), tokenizer.batch_decode(said, skip_special_tokens=True)))
json.dump(answers, open(sys.argv[3], "w"))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sample")


@pytest.fixture(scope="module")
def trained(place: Path) -> trainer.Result:
    """About three minutes of two CPU cores."""
    command = ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", str(place / "data")]
    assert CliRunner().invoke(cli.main, command, catch_exceptions=False).exit_code == 0
    recipe = configs.read_recipe("tiny")
    return trainer.train(configs.build(recipe, {"data": (str(place / "data"),), "out": str(place / "run")}))


def test_the_sample_is_learnt_from_random_weights(trained: trainer.Result) -> None:
    assert trained.evaluation
    assert trained.evaluation.metrics["accuracy"] > 0.9
    assert trained.evaluation.metrics["records"] == 380


def test_a_run_writes_how_fast_it_was(trained: trainer.Result) -> None:
    lines = [json.loads(line) for line in Path(trained.run, "metrics.jsonl").read_text().splitlines()]
    speeds = [line for line in lines if "tokens_per_second" in line]
    assert speeds[-1]["step"] == trained.steps
    assert all(line["tokens_per_second"] > 0 and 0 <= line["waiting_for_input"] <= 1 for line in speeds)


def test_pytorch_predicts_the_same_on_every_record_of_the_validation_split(
    trained: trainer.Result, place: Path
) -> None:
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
        pytest.skip("torch or transformers is not installed")
    export.export_hf(trained.run, out=str(place / "exported"))
    records = preparing.records(place / "data")["validation"]
    given = [{"id": row["id"][0].decode(), "input_ids": list(row["input_ids"])} for row in records]
    (place / "given.json").write_text(json.dumps(given))
    files = [place / "exported", place / "given.json", place / "answers.json"]
    subprocess.run([sys.executable, "-c", THEIRS, *files], check=True)
    theirs = json.loads((place / "answers.json").read_text())
    assert trained.evaluation
    assert {one["id"]: one["prediction"] for one in trained.evaluation.predictions} == theirs
    assert len(set(theirs.values())) == 3
