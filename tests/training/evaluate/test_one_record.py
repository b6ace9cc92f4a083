"""What a run did with one record: its steps are those whose batches have its id, its loss is that of an evaluation."""

import collections
import json
import random
import shutil
from pathlib import Path

import pytest
import toy_runs
from click.testing import CliRunner
from raised import raises

import t5prep
from t5prep.cli import main
from t5prep.dataset.prepared import Dataset
from t5prep.errors import UsageError
from t5prep.preparation.row_trace import RowTracer
from t5prep.training import trainer
from t5prep.training.data import open_datasets, train_batches
from t5prep.training.evaluate import one_record
from t5prep.training.settings.train_config import build, parse_buckets


def seen_by_batches(places: list[str], steps: int, **options) -> dict[str, list[int]]:
    """Id → the steps, from 1, whose batch has it, as the reader of training gives them."""
    steps_by_id = collections.defaultdict(list)
    for step, batch in zip(range(1, steps + 1), train_batches(places, with_ids=True, **options), strict=False):
        for id in {id.decode() for id in batch["id"].numpy()}:
            steps_by_id[id].append(step)
    return steps_by_id


@pytest.mark.parametrize("variant", ["plain", "buckets", "mixture"])
def test_the_steps_are_those_whose_batches_have_the_id(tmp_path: Path, variant: str) -> None:
    places = [toy_runs.classes(tmp_path / "one", rows=130)]
    if variant == "mixture":
        places.append(toy_runs.classes(tmp_path / "two", rows=90, seed=3))
    buckets = ["24x2", "32x2"] if variant == "buckets" else []
    settings = build(
        {"model": "m", "data": tuple(places), "out": "r", "batch": 8, "seed": 4, "buckets": tuple(buckets)}
    )
    opened = open_datasets.open_splits(places, "train")
    rates = [split.records for split in opened]
    batches = seen_by_batches(
        places,
        60,
        global_batch=8,
        seed=4,
        rates=rates if variant == "mixture" else None,
        buckets=parse_buckets(buckets),
    )
    every = [RowTracer(Dataset(path)) for path in places]
    for id in random.Random(1).sample(sorted(batches), 25):
        steps: set[int] = set()
        for tracer, path in zip(every, places, strict=True):  # in a mixture, both may have a row of this id
            for record in (record for record in tracer.records(id) if record.split == "train"):
                location = {
                    "shard": record.shard,
                    "number": record.number,
                    "has_record": [path == record_path for record_path in places],
                }
                steps |= set(one_record.steps_of(opened, settings, **location, steps=60))
        assert sorted(steps) == batches[id]
        assert steps


def test_a_run_says_what_it_did_with_a_row(data: str, finished_run: trainer.Result, tmp_path: Path) -> None:
    out = str(shutil.copytree(finished_run.run, tmp_path / "run"))
    scores = t5prep.evaluate(out, split="validation", worst=1000)
    wrong = {prediction.id: prediction for prediction in scores.worst}
    tracer = RowTracer(Dataset(data))
    right = [prediction for prediction in scores.predictions if prediction["id"] not in wrong]
    for answer in right[:1] + [prediction for prediction in scores.predictions if prediction["id"] in wrong][:1]:
        summary = t5prep.why(answer["id"], data, run=out)["run"]
        assert (summary["trained"], summary["steps"], summary["checkpoint"]) == (12, [], scores.checkpoint)
        assert (summary["prediction"], summary["kept_in"]) == (answer["prediction"], None)
        assert summary["right"] == (answer["id"] not in wrong)
        if not summary["right"]:  # evaluations say the sum over a target's tokens, of which there are two
            assert summary["loss"] == pytest.approx(wrong[answer["id"]].loss / 2, rel=1e-4)
    steps_by_id = seen_by_batches([data], 12, global_batch=8, seed=0)
    id = next(iter(steps_by_id))
    summary = t5prep.why(id, data, run=out)["run"]
    assert summary["steps"] == steps_by_id[id]
    assert next(tracer.records(id)).split == "train"

    (tmp_path / "run" / "eval.json").write_text(json.dumps(scores.to_json()))
    first = scores.predictions[0]["id"]
    result = CliRunner().invoke(main, ["why", first, "--data", data, "--run", out, "--json"])
    assert json.loads(result.stdout)["run"]["kept_in"] == f"{out}/eval.json"
    output = CliRunner().invoke(main, ["why", id, "--data", data, "--run", out]).stdout
    assert f"in {len(steps_by_id[id])} of the 12 steps up to the newest checkpoint: {steps_by_id[id][0]}" in " ".join(
        output.split()
    )

    other_data = toy_runs.classes(tmp_path / "other", rows=90, seed=9)
    with raises(UsageError, "run.dataset-mismatch"):
        t5prep.why(first, other_data, run=out)
    with raises(UsageError, "run.foreign-folder"):
        t5prep.why(first, data, run=str(tmp_path))
