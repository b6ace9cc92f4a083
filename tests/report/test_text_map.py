"""A map of texts: what Embedding Atlas is given. The program itself is a stand-in that keeps its arguments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from preparing import by_id, prepared, questions, write_csv

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.cli import main
from t5prep.train.published import safetensors_file


@pytest.fixture
def data(tmp_path: Path) -> Path:
    prepared(write_csv(tmp_path / "a.csv", questions(40)), tmp_path / "d", tokenizer="sample:", input_length=64)
    return tmp_path / "d"


@pytest.fixture(autouse=True)
def _atlas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "embedding-atlas"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{tmp_path}/asked'\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "execv", lambda program, arguments: sys.exit(subprocess.run(arguments).returncode))


def write_vectors(folder: Path, ids: list[str], values: np.ndarray, *, pooling: str = "mean") -> Path:
    """Vectors as `t5prep embed` writes them, in two files."""
    folder.mkdir()
    shards = []
    for number, own in enumerate(np.array_split(np.arange(len(ids)), 2)):
        shapes = {"vectors": ("F32", (len(own), values.shape[1]))}
        header = safetensors_file.header(shapes, {"ids": json.dumps([ids[one] for one in own])})
        shards.append({"name": f"vectors-{number:05d}.safetensors"})
        (folder / shards[-1]["name"]).write_bytes(header + values[own].tobytes())
    (folder / "manifest.json").write_text(json.dumps({"pooling": pooling, "shards": shards}))
    return folder


def asked(data: Path, vectors: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["explore", str(data), "--map", str(vectors), *more])


def test_each_record_has_its_vector(data: Path, tmp_path: Path) -> None:
    ids = sorted(by_id(data), reverse=True)
    values = np.random.default_rng(0).normal(size=(len(ids), 5)).astype(np.float32)
    known = write_vectors(tmp_path / "v", [*ids[4:], "of no record"], values[3:])
    assert asked(data, known, "--port", "8123").exit_code == 3  # that of the program
    arguments = (tmp_path / "asked").read_text().splitlines()
    assert arguments[1:] == [
        *("--vector", "vector", "--text", "input", "--umap-random-state", "0"),
        *("--host", "127.0.0.1", "--port", "8123"),
    ]
    rows = {row["id"]: row for row in pq.read_table(arguments[0]).to_pylist()}
    assert set(rows) == set(ids[4:])
    for id, vector in zip(ids[4:], values[3:], strict=False):
        assert rows[id]["vector"] == vector.tolist()
    asked(data, known, "--port", "0")
    assert "--port" not in (tmp_path / "asked").read_text()


def test_what_cannot_be_a_map_is_said(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros((2, 3), np.float32)
    cases = {
        "has no vector of a record": write_vectors(tmp_path / "others", ["x", "y"], values),
        "a vector for each token": write_vectors(tmp_path / "tokens", ["x", "y"], values, pooling="none"),
        "holds no vectors": tmp_path,
    }
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text(
        '{"pooling": "mean", "shards": [{"name": "../../d/manifest.json"}]}'
    )
    cases |= {"damaged holds no vectors": tmp_path / "damaged"}
    numbers = {"few": values[:1], "flat": values[0, :2], "deep": values[None].repeat(2, 0), "nan": values * np.nan}
    numbers["empty"] = values[:, :0]
    for name, held in numbers.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "manifest.json").write_text('{"pooling": "mean", "shards": [{"name": "one"}]}')
        header = safetensors_file.header({"vectors": ("F32", held.shape)}, {"ids": '["x", "y"]'})
        (folder / "one").write_bytes(header + held.tobytes())
        cases[f"{name} holds no vectors (one has no vector of finite numbers for each of its ids)"] = folder
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "manifest.json").write_text('{"pooling": "mean", "shards": [{"name": "one"}]}')
    os.mkfifo(tmp_path / "pipe" / "one")
    cases["pipe holds no vectors"] = tmp_path / "pipe"
    for sentence, vectors in cases.items():
        refused = asked(data, vectors)
        assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1), refused.output
        assert sentence in refused.stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "pip install embedding-atlas" in asked(data, tmp_path / "others").stderr
