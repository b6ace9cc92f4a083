"""Texts to files of vectors: what transformers computes, in files that others read, the same after any kill."""

import hashlib
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import encoders
import forked_commands
import numpy as np
import pytest
import torch_process
from click.testing import CliRunner
from raised import raises

import t5prep
from t5prep import cli
from t5prep.errors import OutputError, UsageError
from t5prep.io import gcs
from t5prep.sources import sample
from t5prep.tokens import loading
from t5prep.training.embed.vector_files import MANIFEST
from t5prep.training.model.architecture import EncoderConfig, ModelConfig
from t5prep.training.model.weight_layout import of_encoder
from t5prep.training.model.weights import WEIGHTS_NAME, draw, load_weights, write_layouts
from t5prep.training.published import safetensors_file

TEXTS = ["a gorgeous , witty , seductive movie .", "unflinchingly bleak", "", "it 's a charming journey .", "movie"] * 3


def t5_encoder(folder: Path, *, seed: int = 0, vocab_size: int = 8128) -> Path:
    """A tiny T5 1.1 of which only the encoder is there, with the sample's tokenizer, as google/t5-v1_1-xxl's encoder."""
    shape = ModelConfig(
        vocab_size=vocab_size, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=2,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False,
    )  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(shape.to_json() | {"architectures": ["T5EncoderModel"]}))
    (folder / "spiece.model").write_bytes(sample.tokenizer_path().read_bytes())
    layouts = of_encoder(shape)
    write_layouts(folder / WEIGHTS_NAME, layouts, draw(layouts, seed=seed))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(t5_encoder(tmp_path_factory.mktemp("model") / "t5"))


def texts_of(folder: Path, *, names: tuple[str, ...] = ("vectors",)) -> dict[str, np.ndarray]:
    """What a reader finds: the vectors of each text by its id, of all files in the manifest's order."""
    vectors_by_id: dict[str, np.ndarray] = {}
    for shard in json.loads((folder / MANIFEST).read_text())["shards"]:
        content = (folder / shard["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == shard["sha256"]
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        ids = json.loads(header["__metadata__"]["ids"])
        stored = safetensors_file.tensors(folder / shard["name"]) if "starts" not in header else {}
        if stored:
            vectors = stored["vectors"].read()
            vectors_by_id |= dict(zip(ids, vectors, strict=True))
            continue
        begin, end = header["starts"]["data_offsets"]
        offset = 8 + int.from_bytes(content[:8], "little")
        starts = np.frombuffer(content[offset + begin : offset + end], "<i8")
        kind = {"F32": "<f4", "BF16": "<u2"}[header["vectors"]["dtype"]]
        begin, end = header["vectors"]["data_offsets"]
        values = np.frombuffer(content[offset + begin : offset + end], kind).reshape(header["vectors"]["shape"])
        if kind == "<u2":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        vectors_by_id |= {id: values[starts[index] : starts[index + 1]] for index, id in enumerate(ids)}
    return vectors_by_id


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_each_text_has_the_vectors_of_its_tokens(model: str, tmp_path: Path) -> None:
    rows = [{"id": f"n{index}", "caption": text} for index, text in enumerate(TEXTS)] + [
        {"id": "null", "caption": None}
    ]
    summary = t5prep.embed(
        model, rows, out=str(tmp_path / "out"), column="caption", dtype="float32", batch=4, shard_rows=6
    )
    assert (summary.rows, summary.texts, summary.files, summary.kept, summary.width) == (16, 15, 3, 0, 16)
    assert summary.missing == {"no text": 1}
    vectors_by_id = texts_of(tmp_path / "out")
    tokenizer = loading.load("sample:")
    assert [len(vectors_by_id[f"n{index}"]) for index in range(5)] == [
        len(tokenizer.encode(text)) + 1 for text in TEXTS[:5]
    ]
    assert len(vectors_by_id["n2"]) == 1  # an empty text is EOS alone: what training without a caption needs
    np.testing.assert_allclose(vectors_by_id["n0"], vectors_by_id["n5"], atol=1e-6)
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert manifest["tokens"] == summary.tokens == sum(map(len, vectors_by_id.values()))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        MANIFEST, *(shard["name"] for shard in manifest["shards"])
    }  # fmt: skip


def test_poolings_and_padding_are_of_the_same_vectors(model: str, tmp_path: Path) -> None:
    def embedded(name: str, **choices: Any) -> dict[str, np.ndarray]:
        options = {"dtype": "float32", "batch": 5, "length": 12, **choices}
        t5prep.embed(model, TEXTS[:5], out=str(tmp_path / name), **options)
        return texts_of(tmp_path / name)

    token_vectors, halves = embedded("whole"), embedded("halves", dtype="bfloat16")
    mean, normal = embedded("mean", pooling="mean"), embedded("normal", pooling="mean", normalize=True)
    for id, vectors in token_vectors.items():
        np.testing.assert_allclose(mean[id], vectors.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(normal[id], mean[id] / np.linalg.norm(mean[id]), atol=1e-5)
        np.testing.assert_allclose(halves[id], vectors, rtol=1 / 128)
    t5prep.embed(model, TEXTS[:5], out=str(tmp_path / "padded"), batch=5, dtype="float32", length=12, padded=True)
    raw = (tmp_path / "padded" / "vectors-00000.safetensors").read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    assert (header["vectors"]["shape"], header["mask"]["shape"]) == ([5, 12, 16], [5, 12])
    mask = np.frombuffer(raw[begin + header["mask"]["data_offsets"][0] :], np.uint8).reshape(5, 12)
    vectors = np.frombuffer(raw[begin : begin + 5 * 12 * 16 * 4], "<f4").reshape(5, 12, 16)
    for row_vectors, real, id in zip(vectors, mask, token_vectors, strict=True):
        np.testing.assert_allclose(row_vectors[real > 0], token_vectors[id], atol=1e-5)


def test_only_what_is_missing_or_altered_is_computed_again(model: str, tmp_path: Path) -> None:
    source, out = tmp_path / "captions.txt", tmp_path / "out"
    source.write_text("\n".join(text or "x" for text in TEXTS))
    options: dict[str, Any] = {"out": str(out), "dtype": "float32", "batch": 4, "shard_rows": 4}
    assert t5prep.embed(model, source, **options).kept == 0
    expected_files = content(out)
    assert t5prep.embed(model, source, **options).kept == 4
    altered = out / "vectors-00002.safetensors"
    altered.write_bytes(altered.read_bytes()[:-1] + b"!")
    (out / "vectors-00000.safetensors").unlink()
    os.mkfifo(out / "vectors-00000.safetensors")  # writing into it would wait for a reader
    summary = t5prep.embed(model, source, **options)
    assert (summary.kept, summary.files) == (2, 4)
    assert content(out) == expected_files
    (out / MANIFEST).write_text("{")  # nothing says what these files are
    with raises(OutputError, "output.foreign-file"):
        t5prep.embed(model, source, **options)


def test_vectors_of_something_else_are_left_alone(model: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    t5prep.embed(model, TEXTS, out=str(out), batch=4)
    other_folder, moved = t5_encoder(tmp_path / "other", seed=1), t5_encoder(tmp_path / "moved")
    assert t5prep.embed(str(moved), TEXTS, out=str(out), batch=4).kept == 1  # the same model elsewhere
    expected_files = content(out)
    with raises(OutputError, "output.different-settings"):
        t5prep.embed(str(other_folder), TEXTS, out=str(out), batch=4)
    with raises(OutputError, "output.different-settings"):
        t5prep.embed(model, TEXTS, out=str(out), batch=4, pooling="mean")
    with raises(OutputError, "output.different-settings"):
        t5prep.embed(model, TEXTS[1:], out=str(out), batch=4)
    config, weights = load_weights(moved, encoder=True)
    changed = {name: np.array(weight) for name, weight in weights.items()}
    changed["shared"][77] += 1.0  # one token's embedding was trained (textual inversion)
    write_layouts(moved / WEIGHTS_NAME, of_encoder(config), changed)
    with raises(OutputError, "output.different-settings"):
        t5prep.embed(str(moved), TEXTS, out=str(out), batch=4)
    assert content(out) == expected_files
    small = t5_encoder(tmp_path / "small", vocab_size=1100)
    with raises(UsageError, "tokenizer.vocabulary-mismatch"):
        t5prep.embed(str(small), TEXTS, out=str(tmp_path / "new"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("all of it")
    with raises(OutputError, "output.foreign-file"):
        t5prep.embed(model, TEXTS, out=str(tmp_path / "full"))
    for wrong, message in (
        ({"pooling": "max"}, ("option.unknown-choice",)),
        ({"normalize": True}, ("option.missing-prerequisite",)),
        ({"padded": True, "pooling": "mean"}, ("option.missing-prerequisite",)),
        ({"length": -1}, ("option.out-of-range", "--length", "-1", "0")),
    ):
        with raises(UsageError, *message):
            t5prep.embed(model, TEXTS, out=str(tmp_path / "new"), **wrong)


def test_an_encoder_without_its_head_is_embedded(tmp_path: Path) -> None:
    folder = encoders.bert(tmp_path / "bert")
    words = loading.load(str(folder))
    shape = EncoderConfig(vocab_size=words.vocab_size, d_model=16, d_ff=24, num_layers=2, num_heads=2, max_positions=40)
    (folder / "config.json").write_text(json.dumps(shape.to_json()))
    layouts = of_encoder(shape)
    write_layouts(folder / WEIGHTS_NAME, layouts, draw(layouts, seed=0))
    out = tmp_path / "out"
    result = CliRunner().invoke(
        cli.main,
        ["embed", str(folder), "-", "--out", str(out), "--pooling", "first", "--json"],
        input="\n".join(TEXTS[:2]),
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "out": str(out), "rows": 2, "texts": 2, "tokens": sum(len(words.encode(text)) + 2 for text in TEXTS[:2]),
        "cut": 0, "width": 16, "files": 1, "kept": 0, "missing": {},
    }  # fmt: skip
    assert [vector.shape for vector in texts_of(out).values()] == [(16,), (16,)]


@pytest.mark.slow
def test_eight_devices_compute_the_same(model: str, tmp_path: Path) -> None:
    """Eight devices share the rows of a batch; the other tests of vectors use one."""
    source = tmp_path / "captions.txt"
    source.write_text("\n".join(text or "x" for text in TEXTS))
    t5prep.embed(model, source, out=str(tmp_path / "one"), dtype="float32", batch=8)
    t5prep.embed(model, source, out=str(tmp_path / "eight"), dtype="float32", batch=8, replicas=8)
    assert_near(texts_of(tmp_path / "eight"), texts_of(tmp_path / "one"))


def assert_near(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert actual.keys() == expected.keys()
    largest = max(np.abs(vectors).max() for vectors in expected.values())
    for id, vectors in expected.items():
        np.testing.assert_allclose(actual[id], vectors, atol=1e-5 * largest, rtol=0)


@pytest.mark.extra("fake-gcs-server")
def test_vectors_in_a_bucket_are_those_in_a_folder(bucket: str, model: str, tmp_path: Path) -> None:
    """The same bytes, of which none is computed again."""
    source = tmp_path / "captions.txt"
    source.write_text("\n".join(text or "x" for text in TEXTS))
    options: dict[str, Any] = {"dtype": "float32", "batch": 8, "shard_rows": 4}
    t5prep.embed(model, source, out=str(tmp_path / "one"), **options)
    assert [t5prep.embed(model, source, out=f"{bucket}/vectors", **options).kept for _ in range(2)] == [0, 4]
    bucket_files = {name: gcs.read(f"{bucket}/vectors/{name}") for name in gcs.objects(f"{bucket}/vectors")}
    assert bucket_files == content(tmp_path / "one")


ON_HOSTS = """
import sys, t5prep
t5prep.embed(sys.argv[1], sys.argv[2], out=sys.argv[3], dtype="float32", batch=8, shard_rows=4, replicas=8)
"""


@pytest.mark.slow
def test_two_hosts_write_what_one_does(model: str, tmp_path: Path) -> None:
    """Two processes share the files of vectors between them."""
    from tests.training.test_training_hosts import collect_stderr, start

    source = tmp_path / "captions.txt"
    source.write_text("\n".join(text or "x" for text in TEXTS))
    t5prep.embed(model, source, out=str(tmp_path / "one"), dtype="float32", batch=8, shard_rows=4)
    processes = start(ON_HOSTS, model, str(source), str(tmp_path / "two"))
    output = collect_stderr(processes)
    assert [process.returncode for process in processes] == [0, 0], output
    assert_near(texts_of(tmp_path / "two"), texts_of(tmp_path / "one"))


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_moment_ends_with_the_same_bytes(model: str, tmp_path: Path) -> None:
    """A killed process leaves no false vectors; another test removes and alters files itself."""
    source, chooser = tmp_path / "captions.txt", random.Random(7)
    source.write_text("\n".join(chooser.choice(TEXTS) + f" {number}" for number in range(3000)))
    command = ["embed", model, str(source), "--shard-rows", "100", "--out", str(tmp_path / "killed")]
    t5prep.embed(model, source, out=str(tmp_path / "whole"), shard_rows=100)
    running = forked_commands.start_command(*command)
    kill_threshold = chooser.randrange(1, 20)  # of thirty shards
    while len(list((tmp_path / "killed").glob("*.safetensors"))) < kill_threshold and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    t5prep.embed(model, source, out=str(tmp_path / "killed"), shard_rows=100)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.extra("torch")
@pytest.mark.slow
def test_vectors_are_those_of_transformers(tmp_path: Path) -> None:
    """The encoder of each kind of model, alone, beside transformers."""
    words = {"t5": Path("sample:"), "umt5": Path("sample:")}
    words |= {"bert": encoders.bert(tmp_path / "words"), "modernbert": encoders.modernbert(tmp_path / "more_words")}
    texts, arrays = [text for text in TEXTS if text], {}
    for name, path in words.items():
        tokenizer = loading.load(str(path))
        rows = [[*tokenizer.frame.first, *tokenizer.encode(text), *tokenizer.frame.last] for text in texts]
        length = max(map(len, rows))
        arrays[f"{name}/ids"] = np.array([row + [tokenizer.pad_id] * (length - len(row)) for row in rows])
        arrays[f"{name}/mask"] = np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    np.savez(tmp_path / "ids.npz", **arrays)
    torch_process.pytorch("torch_vectors.py", tmp_path, tmp_path / "ids.npz")
    for name, path in words.items():
        out = tmp_path / f"of_{name}"
        t5prep.embed(str(tmp_path / name), texts, out=str(out), dtype="float32", batch=4, tokenizer=str(path))
        actual, references = list(texts_of(out).values()), np.load(tmp_path / f"{name}.npz")["vectors"]
        for text_vectors, expected, mask in zip(actual, references, arrays[f"{name}/mask"], strict=True):
            real = expected[mask > 0]
            np.testing.assert_allclose(text_vectors, real, atol=1e-5 * np.abs(real).max(), rtol=0, err_msg=name)
