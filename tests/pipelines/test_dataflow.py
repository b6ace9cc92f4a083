"""Dataflow, as far as it can be had without an account: the job that is submitted is the job that does the work."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from servers.dataflow import FAILED, dataflow
from small_corpora import prepared, questions, request, write_csv

from pipelines import engines
from pipelines.prepare import prepare_resolved
from t5prep import sources
from t5prep.dataset import manifest
from t5prep.errors import T5prepError, UsageError
from t5prep.io import gcs
from t5prep.sources import sample
from t5prep.tasks.corpora import so_quality

SAMPLE = sample.tokenizer_path()
ROOT = Path(__file__).parents[2]


def staged(job: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """The pipeline and the package that a job points to, fetched from the bucket."""
    options = job["environment"]["sdkPipelineOptions"]["options"]
    url = options.get("pipelineUrl") or options["pipeline_url"]
    packages = [item["location"] for pool in job["environment"]["workerPools"] for item in pool["packages"]]
    pipeline, package = folder / "pipeline.pb", folder / "workflow.tar.gz"
    pipeline.write_bytes(gcs.read(url))
    (location,) = [package_location for package_location in packages if package_location.endswith("workflow.tar.gz")]
    package.write_bytes(gcs.read("gs://" + location.removeprefix("gs://").removeprefix("storage.googleapis.com/")))
    return pipeline, package


def empty_environment(folder: Path, package: Path) -> Path:
    """A new virtual environment with the staged package and what it asks for; the Python of it."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    pip = [uv, "pip", "install", "-q", "--python"] if os.path.exists(uv) else []
    subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] if pip else []), folder], check=True)
    python = folder / "bin" / "python"
    install = [*pip, python] if pip else [python, "-m", "pip", "install", "-q"]
    subprocess.run([*install, package], check=True)
    return python


@pytest.mark.extra("dataflow", "fake-gcs-server")
@pytest.mark.slow
def test_the_job_that_dataflow_gets_does_the_work_in_an_environment_that_has_only_its_package(
    bucket: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """What Dataflow's workers install and run is complete: nothing of this folder is there."""
    (tmp_path / "rows").mkdir()
    rows = questions(90)
    write_csv(tmp_path / "rows/a.csv", rows[:50])
    write_csv(tmp_path / "rows/b.csv", [*rows[50:], rows[3]])
    job_facts: dict[str, Any] = {}

    def work(job: dict[str, Any]) -> None:
        pipeline, package = staged(job, tmp_path)
        job_facts["pipeline"] = pipeline.stat().st_size
        python = empty_environment(tmp_path / "worker", package)
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        script = [python, ROOT / "tests" / "worker_of_dataflow.py", pipeline]
        result = subprocess.run(script, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr[-3000:]
        job_facts.update(json.loads(result.stdout.splitlines()[-1]))

    task = tmp_path / "mine.py"  # the workers have no such file beside them
    task.write_bytes(Path(so_quality.__file__).read_bytes().replace(b"quality: ", b"judge: "))
    choices: dict[str, Any] = {"task": str(task), "tokenizer": SAMPLE, "shards": 2}
    with dataflow(work) as service:
        arguments = [*service.arguments, f"--temp_location={bucket}/tmp"]
        out = f"{bucket}/out"
        dataflow_manifest = prepared(tmp_path / "rows", out, runner="dataflow", arguments=arguments, **choices)
    near = prepared(tmp_path / "rows", tmp_path / "near", **choices)
    assert dataflow_manifest == manifest.load(out)
    assert dataflow_manifest.task == near.task
    assert dataflow_manifest.splits == near.splits
    assert [file.sha256 for file in dataflow_manifest.source.files] == [file.sha256 for file in near.source.files]
    assert len(service.request) < 1_000_000
    assert job_facts["pipeline"] < 1_000_000
    assert len(job_facts["fns"]) >= 10
    assert job_facts["t5prep"].startswith(str(tmp_path / "worker"))
    assert not job_facts["tensorflow"]
    assert "vCPU-hours" in capfd.readouterr().err


@pytest.mark.extra("dataflow", "fake-gcs-server")
@pytest.mark.slow
def test_a_job_of_ten_thousand_files_is_small_and_one_that_fails_is_a_sentence(bucket: str, tmp_path: Path) -> None:
    gcs.write(f"{bucket}/rows.csv", write_csv(tmp_path / "rows.csv", questions(5)).read_bytes())
    (raw_file,) = sources.resolve(f"{bucket}/rows.csv").files
    raw_files = tuple(dataclasses.replace(raw_file, name=f"part-{i:05d}.csv") for i in range(10_000))
    source = sources.Resolved(bucket, "", raw_files, "", "")
    sizes: list[int] = []

    def work(job: dict[str, Any]) -> None:
        sizes.append(staged(job, tmp_path)[0].stat().st_size)
        raise KeyboardInterrupt

    choices: dict[str, Any] = {"input_length": 512, "target_length": 8, "splits": {"train": 1.0}}
    with dataflow(work) as service:
        arguments = [*service.arguments, f"--temp_location={bucket}/tmp"]
        run_options: dict[str, Any] = {"tokenizer": SAMPLE, "runner": "dataflow", "arguments": arguments}
        with raises(T5prepError, "pipeline.failure", str(FAILED), "dataflow"):
            prepare_resolved(request("so_quality", source, f"{bucket}/out", **run_options, **choices))
    assert len(service.request) < 1_000_000
    assert sizes[0] < 1_000_000
    print(f"the request has {len(service.request):,} bytes, the pipeline {sizes[0]:,}")


@pytest.mark.extra("dataflow", "fake-gcs-server")
def test_options_that_dataflow_needs_are_asked_for_one_by_one(bucket: str, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(5))
    with raises(UsageError, "option.missing", "project"):
        prepared(source, f"{bucket}/out", tokenizer=SAMPLE, runner="dataflow")
    with raises(UsageError, "bucket.local-path"):
        prepared(source, tmp_path / "out", tokenizer=SAMPLE, runner="dataflow")


@pytest.mark.extra("dataflow", "fake-gcs-server")
def test_an_image_of_the_users_own_has_the_package_already(bucket: str) -> None:
    from apache_beam.options.pipeline_options import SetupOptions

    common_arguments = ["--project=mine", "--region=here", "--temp_location=gs://bucket/tmp"]
    for extra_arguments, has in (([], True), (["--sdk_container_image=image"], False)):
        setup_options = engines.engine("dataflow", arguments=[*common_arguments, *extra_arguments]).options.view_as(
            SetupOptions
        )
        assert bool(setup_options.setup_file or setup_options.requirements_file) is has


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.engines._installed", lambda module: False)
    with raises(UsageError, "install.extra-missing"):
        engines.require("dataflow", out="gs://bucket/out")
