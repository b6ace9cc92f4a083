"""A run on gs://, through TensorFlow's own client: the data read from a bucket, the checkpoints written to one."""

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
import toy_runs

from t5prep.dataset.upload import upload
from t5prep.io import gcs

pytestmark = pytest.mark.extra("fake-gcs-server", "root")

TRAIN = """
import json, sys
import numpy as np
from t5prep.training.publish import export
from t5prep.training.run import run
from t5prep.training import trainer
from t5prep.training.settings.train_config import build
import lowered_programs
lowered_programs.use_those_of_the_tests()
data, shape, out, local = sys.argv[1:]
toy = {
    "data": (data,), "model": shape, "weights": "random", "batch": 8, "learning_rate": 0.01, "eval_every": 2,
    "dropout": 0.0, "log_every": 1, "keep": 1,
}
trainer.train(build(toy, {"out": out, "steps": 4}))
gone_on = trainer.train(build(toy, {"out": out, "steps": 6}))
whole = trainer.train(build(toy, {"out": local, "steps": 6, "tensorboard": False}))
export.export_hf(out, out=local + "-exported")
opened = run.open_model(out, checkpoint="last")
expected = run.open_model(local, checkpoint="last")
print(json.dumps({
    "best": gone_on.best,
    "step": whole.best.rpartition("/")[2],
    "same scores": gone_on.evaluation == whole.evaluation,
    "same weights": all(np.array_equal(opened.weights[name], own) for name, own in expected.weights.items()),
}))
"""


@pytest.mark.slow
def test_a_run_in_a_bucket_is_the_run_in_a_directory(googleapis, bucket: str, tmp_path: Path) -> None:
    """Stopped and gone on with, while the storage fails now and then."""
    toy_runs.classes(tmp_path / "classes")
    upload(tmp_path / "classes", f"{bucket}/classes")
    shape, out, local = toy_runs.shape(tmp_path / "shape"), f"{bucket}/runs/one", tmp_path / "run"
    failing = iter(["503", "", "cut", "", "", "503", "", ""])
    googleapis.front.fault = lambda request: next(failing, "") if request.kind in ("put", "read") else ""
    result = googleapis.run(TRAIN, f"{bucket}/classes", shape, out, str(local), timeout=900)
    assert next(failing, None) is None
    assert result.returncode == 0, result.stderr[-3000:]
    report = json.loads(result.stdout)
    best = f"{out}/checkpoints/{report.pop('step')}"
    assert report == {"best": best, "same scores": True, "same weights": True}
    lines = [json.loads(line) for line in gcs.read(f"{out}/metrics.jsonl").decode().splitlines()]
    assert {line["step"]: line["loss"] for line in lines if "loss" in line} == toy_runs.losses(local)
    assert "Resuming " in result.stderr
    assert (tmp_path / "run-exported" / "model.safetensors").exists()
    # A checkpoint is whole when its marker is there: nothing of it is written after the marker. Old ones went.
    written_urls = [
        unquote(request.url)
        for request in googleapis.front.requests
        if request.method in ("POST", "PUT") and request.status == 200
    ]
    last = [name for name in written_urls if "/00000006/" in name]
    assert any("state.index" in name for name in last)
    assert "checkpoint.json" in last[-1]
    checkpoint_files = {step: sorted(gcs.objects(f"{out}/checkpoints/{step:08d}")) for step in (2, 4, 6)}
    expected_files = ["checkpoint.json", "state.data-00000-of-00001", "state.index"]
    assert checkpoint_files == {
        step: expected_files if f"{step:08d}" in (best[-8:], "00000006") else [] for step in (2, 4, 6)
    }
