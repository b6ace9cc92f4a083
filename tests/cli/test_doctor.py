"""doctor: each line of it, on machines that lack this and that; and no credential in what it prints."""

import importlib.metadata
import importlib.util
import json
import re
from email.message import Message
from importlib.metadata import _adapters
from pathlib import Path

import pytest
from click.testing import CliRunner

from t5prep.cli import _checks, main
from t5prep.cli._checks import Finding, examine, healthy
from t5prep.io import installation

RUN_PYTHON = _checks.run_python  # which the tests do without, but for one


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home of its own, and no TensorFlow started."""
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "KAGGLE_KEY",
        "KAGGLE_API_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("CLOUDSDK_CONFIG", "HF_HOME", "KAGGLE_CONFIG_DIR", "T5PREP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(_checks, "run_python", lambda *_: {"version": "2.20.0", "devices": {"CPU": 1}})


def _collect_findings(**options: str) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine(**options)}


def _installed(monkeypatch: pytest.MonkeyPatch, requires: list[str], versions: dict[str, str]) -> None:
    about = Message()
    about["Requires-Python"] = ">=3.11"
    for requirement in requires:
        about["Requires-Dist"] = requirement

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: _adapters.Message(about))
    monkeypatch.setattr(importlib.metadata, "version", version)


def test_packages_are_held_against_our_own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = ["numpy>=2,<3", "click>=8.1", 'jax==0.10.2; extra == "plan"', 'transformers<6,>=5; extra == "train"']
    _installed(monkeypatch, requires, {"numpy": "1.26.0", "click": "8.1.7", "jax": "0.10.2"})
    findings = _collect_findings()
    assert findings["packages"].state == "wrong"
    assert "numpy 1.26.0 is not" in findings["packages"].seen
    assert "click" not in findings["packages"].seen
    assert findings["extra plan"].state == "ok"
    assert (findings["extra train"].state, findings["extra train"].fix) == (
        "absent",
        installation.install_command("train"),
    )
    assert "transformers is missing" in findings["extra train"].seen
    assert findings["TensorFlow"].state == "absent"
    assert not healthy(list(findings.values()))
    _installed(monkeypatch, requires, {"numpy": "2.1", "click": "8.1.7"})
    assert _collect_findings()["packages"].state == "ok"


@pytest.mark.parametrize(("installed_version", "state"), [("2.20.0", "ok"), ("2.19.1", "wrong")])
def test_two_tensorflows_of_one_folder_are_of_one_version(
    monkeypatch: pytest.MonkeyPatch, installed_version: str, state: str
) -> None:
    """The wheel with CUDA and the one without have the same files; either will do."""
    requires = ['tensorflow-cpu<2.22,>=2.20; extra == "train"']
    monkeypatch.setattr(_checks, "run_python", lambda *_: {"version": "2.20.0", "devices": {"CPU": 1}})
    _installed(monkeypatch, requires, {"tensorflow": installed_version, "tensorflow-cpu": "2.20.0"})
    assert _collect_findings()["TensorFlow"].state == state
    _installed(monkeypatch, requires, {"tensorflow": "2.20.0"})
    assert {_collect_findings()[name].state for name in ("TensorFlow", "extra train")} == {"ok"}


def test_what_a_jax_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A jax without the one name is wrong in `doctor` by the sentence with which `train` ends."""
    monkeypatch.setattr(_checks, "run_python", RUN_PYTHON)
    # TensorFlow itself takes seconds to start, and is not asked.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "sys.modules['jax.extend.mlir'] = types.ModuleType('jax.extend.mlir')\n"
        "sys.modules['tensorflow'] = tf = types.ModuleType('tensorflow')\n"
        "tf.config = types.SimpleNamespace(list_physical_devices=list)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (finding,) = _checks.tensorflow()
    assert finding.state == "wrong"
    assert re.match(r"jax 0\.\d+\.\S+ .*cannot import name 'hlo_to_stablehlo'", finding.seen)
    assert 'pip install "jax>=' in finding.seen


def test_an_old_python_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(monkeypatch, [], {})
    monkeypatch.setattr(_checks.platform, "python_version", lambda: "3.10.4")
    assert _collect_findings()["Python"].state == "wrong"


def test_credentials_are_seen_and_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {_collect_findings()[name].state for name in ("Google Cloud", "Hugging Face", "Kaggle")} == {"absent"}
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    (tmp_path / ".kaggle").mkdir()
    (tmp_path / ".kaggle" / "kaggle.json").write_text('{"key": "alsosecret"}')
    (tmp_path / ".config" / "gcloud").mkdir(parents=True)
    (tmp_path / ".config" / "gcloud" / "application_default_credentials.json").write_text('{"x": "thirdsecret"}')
    result = CliRunner().invoke(main, ["doctor", "--json"])
    findings = {finding["what"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert {findings[name]["state"] for name in ("Google Cloud", "Hugging Face", "Kaggle")} == {"ok"}
    assert "secret" not in result.output
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    assert _collect_findings()["Google Cloud"].state == "wrong"


def test_runners_come_with_what_gets_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("T5PREP_ENGINES", str(tmp_path))
    findings = _collect_findings()
    assert findings["runner local"].state == "ok"
    assert findings["runner flink"].state == findings["runner prism"].state == "absent"
    assert "Java" in findings["runner flink"].seen
    assert findings["runner flink"].fix


def test_a_tpu_is_looked_at_chips_first(monkeypatch: pytest.MonkeyPatch) -> None:
    executed_codes = []
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    monkeypatch.setattr(
        _checks, "run_python", lambda code, *_: executed_codes.append(code) or {"version": "2.20.0", "devices": {}}
    )
    assert _collect_findings()["TPU"].state == "absent"
    finding = _collect_findings(tpu="local")["TPU"]
    assert finding.state == "wrong"
    assert finding.seen.startswith("no TPU chip on this machine (")
    assert _checks.TPU_CODE not in executed_codes  # libtpu would wait for an answer of the network
    assert "--worker=all" in _collect_findings(tpu="mine")["TPU mine"].fix


def test_gpus_need_a_driver_then_a_jax_with_cuda_and_are_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_gpu, answers = lambda: next(_checks.gpus()), {"devices": 2, "kind": "NVIDIA L4"}
    monkeypatch.setattr(_checks, "run_python", lambda code: answers if code == _checks.GPU_CODE else {})
    assert "open_layout(gpus=True)" in _checks.GPU_CODE
    monkeypatch.setattr(_checks, "DRIVER", tmp_path / "version")
    assert check_gpu().seen == "no driver of NVIDIA on this machine"
    _checks.DRIVER.touch()
    monkeypatch.setattr(_checks, "version", lambda name: None)
    assert (check_gpu().state, check_gpu().fix) == ("absent", installation.install_command("gpu"))
    monkeypatch.setattr(_checks, "version", lambda name: "0.10.2")
    assert check_gpu().seen == "2 devices (NVIDIA L4); a tiny step ran on them"
    answers = {"error": "out of memory"}
    assert (check_gpu().state, check_gpu().seen) == ("wrong", "out of memory")


def test_a_tpu_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"versions": {"jax": "0.10.2"}, "devices": 4, "kind": "TPU v5 lite", "memory": 16 << 30, "loss": 5.0}
    monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("/dev/accel0")]))
    monkeypatch.setattr(_checks, "version", lambda name: "1.0")
    monkeypatch.setattr(
        _checks,
        "run_python",
        lambda code, *_: answer | {"version": "2.20.0"} if code == _checks.TPU_CODE else {"error": "x"},
    )
    findings = _collect_findings(tpu="local")
    assert findings["TPU chips"].seen == "2 on this machine"
    assert findings["TPU runtime"].seen == "jax 0.10.2"
    assert findings["TPU"].seen == "4 devices (TPU v5 lite, 16.0 GiB each); a tiny step ran on them"
    monkeypatch.setattr(_checks, "run_python", lambda *_: {"error": "in use by process 7"})
    findings = _collect_findings(tpu="local")
    assert (findings["TPU"].state, findings["TPU"].seen) == ("wrong", "in use by process 7")
    monkeypatch.setattr(_checks, "version", lambda name: None)
    assert _collect_findings(tpu="local")["libtpu"].fix == installation.install_command("tpu")


def test_a_small_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "ENOUGH_BYTES", 1 << 80)
    fix = _collect_findings()["disk of the cache"].fix
    assert fix == "t5prep cache clear tokenized"
    assert CliRunner().invoke(main, fix.split()[1:]).exit_code == 0


@pytest.mark.extra("fake-gcs-server")
def test_a_bucket_is_tried(bucket: str) -> None:
    findings = {finding.what: finding for finding in examine(bucket=bucket)}
    assert {name for name in findings if name.startswith("bucket: ")} >= {
        "bucket: list",
        "bucket: write",
        "bucket: delete",
    }
    assert findings["bucket: write"].state == "ok"
    assert _collect_findings(bucket="nonsense")["bucket: name"].state == "wrong"


def test_what_a_process_says_and_why_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert _checks.run_python("print('talk'); print('{\"cores\": 4}')") == {"cores": 4}
    assert _checks.run_python("raise SystemExit('broken driver')") == {"error": "broken driver"}
    assert _checks.run_python("import os; os._exit(3)") == {"error": "it ended with code 3"}


def test_every_line_of_text_has_a_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(main, ["doctor", "--tpu", "mine"])
    lines = [line for line in result.output.splitlines() if "→" not in line]
    assert {line.split()[0] for line in lines} <= {"ok", "–", "wrong"}
    assert "\x1b" not in result.output
