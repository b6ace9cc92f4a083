"""Checkpoints of Orbax: what is exported has the names and values of transformers' Flax models; what others wrote is read."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model_formats
import numpy as np
import pytest
import training
from click.testing import CliRunner
from torch_t5 import FAMILIES

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("orbax.checkpoint", reason="needs the extra orbax")

import jax
import orbax.checkpoint as orbax

from t5prep import cli
from t5prep.errors import UsageError
from t5prep.io import model_files
from t5prep.train.model.architecture import Config, EncoderConfig, ModelConfig
from t5prep.train.model.weights import load_weights, random_weights, save_for_orbax, save_weights
from t5prep.train.published import choosing, flax_file
from t5prep.train.run import run as run_folder

GOLDEN = Path(__file__).parents[2] / "data" / "published"
BERT = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 40, "hidden_size": 8}
BERT |= {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 16}
BERT |= {"type_vocab_size": 2, "id2label": {"0": "no", "1": "yes"}}
CONFIGS: dict[str, Config] = {name: ModelConfig.from_json(said) for name, said in FAMILIES.items()}
CONFIGS["bert"] = EncoderConfig.from_json(BERT)


def leaves(tree: Mapping[str, Any], *names: str) -> dict[tuple[str, ...], np.ndarray]:
    found = {}
    for name, value in tree.items():
        found |= leaves(value, *names, name) if isinstance(value, dict) else {(*names, name): np.asarray(value)}
    return found


def tensors_of(config: Config, folder: Path) -> dict[str, np.ndarray]:
    """Random weights by PyTorch's names."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    save_weights(folder, config, random_weights(config))
    return {name: stored.read() for name, stored in choosing.tensors(model_files.find(folder)).items()}


@pytest.mark.parametrize("family", CONFIGS)
def test_what_is_written_is_read_whole_and_in_parts(tmp_path: Path, family: str) -> None:
    config, weights = CONFIGS[family], random_weights(CONFIGS[family])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text(json.dumps(config.to_json()))
    save_for_orbax(tmp_path / "out", config, weights)
    found, read = load_weights(tmp_path / "out")
    assert found == config
    assert read.keys() == weights.keys()
    for name, value in weights.items():
        assert np.array_equal(read[name], value), name
        middle = tuple(slice(size // 3, max(1, size // 2)) for size in value.shape)
        assert np.array_equal(read[name][middle], value[middle]), name


def test_the_names_are_those_of_transformers_flax_model(tmp_path: Path) -> None:
    """That file was written by FlaxT5ForConditionalGeneration (tests/data/published/make_by_transformers4.py)."""
    data = memoryview((GOLDEN / "t5" / "chunked" / "flax_model.msgpack").read_bytes())
    theirs = flax_file.unpack(data)
    config, weights = load_weights(GOLDEN / "t5" / "chunked")
    (tmp_path / "out").mkdir()
    save_for_orbax(tmp_path / "out", config, weights)
    ours = leaves(orbax.StandardCheckpointer().restore(tmp_path / "out")["params"])
    paths = {}

    def walk(value: Any, *names: str) -> None:
        if isinstance(value, dict) and flax_file.CHUNKED not in value:
            for name, inner in value.items():
                walk(inner, *names, name)
        else:
            paths[names] = flax_file.array_at(GOLDEN / "t5" / "chunked" / "flax_model.msgpack", data, value)

    walk(theirs)
    assert ours.keys() == paths.keys()
    assert all(np.array_equal(ours[names], stored.read()) for names, stored in paths.items())


@pytest.mark.parametrize("root", [("params",), ("params", "params"), ("target",), ("optimizer", "target"), ()])
def test_what_a_program_of_flax_saved_is_read_below_any_of_the_usual_names(
    tmp_path: Path, root: tuple[str, ...]
) -> None:
    tensors = tensors_of(CONFIGS["t5_1_1"], tmp_path / "hf")
    named = {}
    for name, value in tensors.items():
        path = flax_file.flax_name(name, value.ndim)
        named[(*root, *path)] = np.ascontiguousarray(value.T if path[-1] == "kernel" else value)
    beside = {("step",): np.array(7), ("opt_state", "0", "count"): np.array(7)} if root else {}
    with orbax.StandardCheckpointer() as writer:
        writer.save(tmp_path / "saved", model_formats.nested(named | beside))
    (tmp_path / "hf" / "config.json").rename(tmp_path / "saved" / "config.json")
    expected, read = random_weights(CONFIGS["t5_1_1"]), load_weights(tmp_path / "saved")[1]
    assert all(np.array_equal(read[name], value) for name, value in expected.items())


@pytest.mark.parametrize("layout", ["ocdbt", "zarr", "zarr3", "bfloat16"])
def test_t5x_names_need_no_config(tmp_path: Path, layout: str) -> None:
    config = CONFIGS["t5"]
    tensors = tensors_of(config, tmp_path / "hf")
    named = model_formats.t5x_leaves(tensors)
    if layout == "bfloat16":
        named = {names: value.astype(jax.numpy.bfloat16) for names, value in named.items()}
    handler = orbax.PyTreeCheckpointHandler(use_ocdbt=layout in ("ocdbt", "bfloat16"), use_zarr3=layout == "zarr3")
    orbax.Checkpointer(handler).save(
        tmp_path / "saved", {"target": model_formats.nested(named), "state": {"step": np.array(3)}}
    )
    found, read = load_weights(tmp_path / "saved")
    assert found == config
    rounding = 1e-2 if layout == "bfloat16" else 0
    for name, value in random_weights(config).items():
        np.testing.assert_allclose(np.asarray(read[name]), value, rtol=rounding)


def cut(place: Path) -> None:
    for path in [path for path in place.rglob("*") if path.parent.name == "d"]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut, "_METADATA cannot be read, for .*damaged"),
        (lambda place: (place / "manifest.ocdbt").write_bytes(b"no"), "its list of arrays is damaged or missing"),
        (lambda place: os.truncate(place / "manifest.ocdbt", 1 << 40), "is larger than any list of arrays"),
        (lambda place: (place / "manifest.ocdbt").unlink(), "no array is beside it: fetch the whole folder"),
        (lambda place: [path.unlink() for path in place.rglob("*") if path.parent.name == "d"], "damaged"),
    ],
)
def test_damage_is_one_sentence(tmp_path: Path, harm: Any, said: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text(json.dumps(CONFIGS["t5"].to_json()))
    save_for_orbax(tmp_path / "out", CONFIGS["t5"], random_weights(CONFIGS["t5"]))
    harm(tmp_path / "out")
    with pytest.raises(UsageError, match=said) as raised:
        [np.asarray(value) for value in load_weights(tmp_path / "out")[1].values()]
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("zarr3", [False, True])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "is damaged .NOT_FOUND: chunk"),
        ("pipe", "neither a file nor a folder"),
        ("large", "larger than what its chunks can hold"),
    ],
)
def test_an_array_without_one_of_its_files_is_no_zeros(tmp_path: Path, zarr3: bool, kind: str, said: str) -> None:
    """TensorStore fills what is missing with zeros, waits for a pipe without end, and reads 8 GB of holes into memory."""
    named = model_formats.t5x_leaves(tensors_of(CONFIGS["t5"], tmp_path / "hf"))
    handler = orbax.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=zarr3)
    orbax.Checkpointer(handler).save(tmp_path / "saved", {"target": model_formats.nested(named)})
    load_weights(tmp_path / "saved")
    places = [path for path in (tmp_path / "saved").glob("*/**/*") if path.is_file() and path.name[-1].isdecimal()]
    (chunk := places[0]).unlink()
    if kind == "pipe":
        os.mkfifo(chunk)
    if kind == "large":
        chunk.touch()
        os.truncate(chunk, 8 << 30)
    with pytest.raises(UsageError, match=said):
        [np.asarray(value) for value in load_weights(tmp_path / "saved")[1].values()]


# A process of its own, as other tests of this one have opened the devices already.
EXPORTED = """
import sys
import jax
from t5prep import cli
try:
    cli.main(sys.argv[1:])
finally:
    assert jax.config.jax_platforms == "cpu", jax.config.jax_platforms
"""


@pytest.mark.slow
def test_a_run_is_exported_without_a_device_and_trained_from(tmp_path: Path) -> None:
    data, shape, run, out = (str(tmp_path / name) for name in ("data", "shape", "run", "model"))
    training.classes(tmp_path / "data")
    settings = ["--set=steps=1", "--set=warmup=0", "--set=batch=8"]
    begin = [
        "train",
        "--data",
        data,
        "--model",
        training.shape(Path(shape)),
        "--out",
        run,
        "--set=weights=random",
        *settings,
    ]
    result = CliRunner().invoke(cli.main, begin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    export = ["export", "--model", run, "--format", "orbax", "--out", out]
    done = subprocess.run([sys.executable, "-c", EXPORTED, *export], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    opened = run_folder.open_model(run)
    read = load_weights(out)[1]
    assert all(np.array_equal(read[name], value) for name, value in opened.weights.items())
    again = ["train", "--data", data, "--model", out, "--out", str(tmp_path / "again"), *settings]
    result = CliRunner().invoke(cli.main, again, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_who_lacks_the_packages_is_told_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_METADATA").write_text("{}")
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["t5"].to_json()))
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(UsageError, match=r"need tensorstore, which is missing: .*\[orbax\]"):
        load_weights(tmp_path)
