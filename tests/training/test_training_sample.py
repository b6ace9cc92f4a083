"""The tiny recipe on the built-in sample, by the commands of `make train`: what it reaches, and what PyTorch makes of its export."""

import json
import re
from pathlib import Path

import pytest
import small_corpora
import tensorflow as tf
import torch_process
from click.testing import CliRunner

from t5prep import cli
from t5prep.training import trainer
from t5prep.training.publish import export
from t5prep.training.runtime import compiling
from t5prep.training.settings import train_config

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sample")


# Of the recipe's four epochs two, of inputs a quarter as long: it learns the sample in that already.
SETTINGS = {"epochs": 2.0, "warmup": 20.0}
LENGTH = "--input-length=128"


@pytest.fixture(scope="module")
def output(folder: Path) -> str:
    """What `make train` ends with."""
    data, run, settings = str(folder / "data"), str(folder / "run"), [f"--set={k}={v}" for k, v in SETTINGS.items()]
    with pytest.MonkeyPatch.context() as patch:
        # Unlike a toy's, these steps take longer than the compiler: 1.3 s of processor time each rather than 1.7.
        optimized = {**compiling.OPTIONS["cpu"], "xla_backend_optimization_level": 2}
        patch.setitem(compiling.OPTIONS, "cpu", optimized)
        for command in (
            ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", LENGTH, "--out", data],
            ["train", "--recipe", "tiny", "--data", data, "--out", run, *settings],
        ):
            result = CliRunner().invoke(cli.main, command, catch_exceptions=False)
            assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def trained(output: str, folder: Path) -> trainer.Result:
    """The run, which only says how it ended when it is started again."""
    settings = {"data": (str(folder / "data"),), "out": str(folder / "run"), **SETTINGS}
    return trainer.train(train_config.build(train_config.read_recipe("tiny"), settings))


def test_the_sample_is_learnt_from_random_weights(trained: trainer.Result, output: str) -> None:
    """What `make train` reaches and prints."""
    assert trained.evaluation
    assert trained.evaluation.metrics["accuracy"] > 0.9
    assert trained.evaluation.metrics["records"] == 380
    # It ends with a table of predictions, the accuracy, and the confusion matrix.
    assert re.search(r"^ok +\S+ +(high|low|none) +(high|low|none)$", output, re.MULTILINE)
    assert f"accuracy           {trained.evaluation.metrics['accuracy']:.4f}" in output
    assert re.search(r"^target( +(high|low|none)){3} +\(other\)$", output, re.MULTILINE)
    assert f"best checkpoint: {trained.best}" in output


def test_a_run_writes_its_curves_and_how_fast_it_was(trained: trainer.Result) -> None:
    lines = [json.loads(line) for line in Path(trained.run, "metrics.jsonl").read_text().splitlines()]
    speeds = [line for line in lines if "tokens_per_second" in line]
    assert speeds[-1]["step"] == trained.steps
    assert all(line["device"].endswith(" × cpu") for line in speeds)
    assert all(line["tokens_per_second"] > 0 and 0 <= line["waiting_for_input"] <= 1 for line in speeds)
    events = [
        event
        for path in Path(trained.run, "tensorboard").iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(path))
    ]
    tags = {value.tag for event in events for value in event.summary.value}
    assert tags == {name for line in lines for name in line} - {"step", "device"}  # a text is not drawn


@pytest.mark.extra("torch")
def test_pytorch_predicts_the_same_on_every_record_of_the_validation_split(
    trained: trainer.Result, folder: Path
) -> None:
    """PyTorch's answers on 380 records of a learnt model; other exports are compared on a few."""
    export.export_hf(trained.run, out=str(folder / "exported"))
    records = small_corpora.records(folder / "data")["validation"]
    input_rows = [{"id": row["id"][0].decode(), "input_ids": list(row["input_ids"])} for row in records]
    (folder / "given.json").write_text(json.dumps(input_rows))
    files = [folder / "exported", folder / "given.json", folder / "answers.json"]
    torch_process.pytorch_code(THEIRS, *files)
    theirs = json.loads((folder / "answers.json").read_text())
    assert trained.evaluation
    assert {prediction["id"]: prediction["prediction"] for prediction in trained.evaluation.predictions} == theirs
    assert len(set(theirs.values())) == 3
