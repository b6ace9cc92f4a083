"""Files that are cut short, wrong, or meant to do harm: one sentence that names the model, and nothing ran."""

import collections
import contextlib
import gzip
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_formats
import numpy as np
import pytest
from model_formats import Call, LongStorage, pickled, tensor
from raised import raises

from t5prep.errors import UsageError
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import load_weights, random_weights, save_weights
from t5prep.training.published.stored import UnreadableError
from t5prep.training.published.t5x_file import zarr_array

TINY = ModelConfig(vocab_size=40, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_decoder_layers=1, num_heads=2)
SHAPES = {
    tensor: layout.shape[layout.stacked_axes :][:: -1 if layout.transposed else 1]
    for layout in weight_layouts(TINY).values()
    for tensor in layout.tensors
}


def state() -> dict[str, Any]:
    return collections.OrderedDict(
        (name, tensor(str(index), shape)) for index, (name, shape) in enumerate(SHAPES.items())
    )


def write_archive(path: Path, content: bytes, *, compression: int = zipfile.ZIP_STORED, extra: Any = None) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", content)
        for index, shape in enumerate(SHAPES.values()):
            archive.writestr(f"archive/data/{index}", np.full(shape, index, np.float32).tobytes())
        for name, value in (extra or {}).items():
            archive.writestr(name, value)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TINY.to_json()))
    return tmp_path


@pytest.mark.parametrize("name", ["", "..", "../other", "é" * 128])
def test_a_name_of_an_array_that_names_no_folder_beside_it_is_refused(tmp_path: Path, name: str) -> None:
    with raises(UnreadableError, "weights.damaged"):
        zarr_array(tmp_path, name)


def another(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def with_entry(path: Path, **entry: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entry))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / ".zarray").unlink(), ("weights.missing-file",)),
        (lambda folder: (folder / ".zarray").write_text("{"), ("weights.damaged", ".zarray")),
        (lambda folder: (folder / "0.0").unlink(), ("weights.missing-file", "0.0")),
        (lambda folder: (folder / "0.0").write_bytes(b"\x1f\x8b"), ("weights.damaged", "/0.0")),
        (
            lambda folder: (folder / "0.0").write_bytes(gzip.compress(bytes(1 << 24))),
            ("weights.damaged", "/0.0"),
        ),
        (lambda folder: another(folder / ".zarray", os.mkfifo), ("model.unreadable",)),
        (
            lambda folder: another(folder / ".zarray", lambda path: path.symlink_to("/dev/zero")),
            ("model.unreadable",),
        ),
        (lambda folder: os.truncate(folder / ".zarray", 1 << 40), ("weights.damaged",)),
        (lambda folder: another(folder / "0.0", os.mkfifo), ("weights.damaged", "/0.0")),
        (
            lambda folder: another(folder / "0.0", lambda path: path.symlink_to("/dev/zero")),
            ("weights.damaged", "/0.0"),
        ),
        (lambda folder: os.truncate(folder / "0.0", 1 << 40), ("weights.damaged",)),
        (
            lambda folder: with_entry(folder / ".zarray", dimension_separator="/../../other"),
            ("weights.unsupported-format",),
        ),
        (lambda folder: with_entry(folder / ".zarray", chunks=[1 << 50, 8]), ("weights.damaged",)),
        (
            lambda folder: with_entry(folder / ".zarray", dtype="int32"),
            ("weights.unsupported-dtype",),
        ),
    ],
)
def test_a_damaged_checkpoint_of_t5x_is_one_sentence(
    tmp_path: Path, harm: Callable[[Path], object], message: tuple[str, ...]
) -> None:
    tensors = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    model_formats.write_t5x(tmp_path, tensors, kind="zarr")
    harm(tmp_path / "target.encoder.layers_0.mlp.wo.kernel")
    with raises(UsageError, *message, str(tmp_path)):
        np.asarray(load_weights(tmp_path)[1]["encoder.wo"])


def array(content: bytes) -> bytes:
    """A float32[40, 8] as flax.serialization has it, whatever its bytes are."""
    inner = b"\x93\x92\x28\x08\xa7float32" + b"\xc5" + struct.pack(">H", len(content)) + content
    return b"\xc8" + struct.pack(">H", len(inner)) + b"\x01" + inner


@pytest.mark.parametrize(
    "chunked",
    [
        b"\x81\xb9__msgpack_chunked_array__\xc3",
        b"\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x81\xa2\xc2\xb2\x03\xa6chunks\x80",
        b"\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x82\xa10\x28\xa11\x08\xa6chunks\x82\xa10%s\xa11%s"
        % (array(bytes(3)), array(bytes(1277))),
    ],
)
def test_an_array_in_chunks_that_is_none_is_refused(model: Path, chunked: bytes) -> None:
    """It lacks its shape, has a name that is a digit and no number, or has pieces that end within a value."""
    (model / "flax_model.msgpack").write_bytes(b"\x81\xa6shared\x81\xa9embedding" + chunked)
    refused(model, "weights.damaged", "flax_model.msgpack")


def test_a_checkpoint_of_tensorflow_is_none_of_t5x(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"')
    with raises(UsageError, "weights.no-tensors"):
        load_weights(tmp_path)


def refused(model: Path, code: str, *values: str) -> None:
    """Expect that a model is refused in one line that names the model."""
    with raises(UsageError, code, str(model), *values) as raised:
        load_weights(model)
    assert "\n" not in str(raised.value)


def test_an_archive_without_torch_is_read(model: Path) -> None:
    write_archive(model / "pytorch_model.bin", pickled(state()))
    weights = load_weights(model)[1]
    assert np.asarray(weights["shared"]).tolist() == np.full((40, 8), 0.0).tolist()
    assert weights["decoder.wo"][0, 0, 0] == list(SHAPES).index("decoder.block.0.layer.2.DenseReluDense.wo.weight")


CALLS = {
    "os.system": lambda: Call(os.system, "touch ran"),
    "eval": lambda: Call(eval, "open('ran', 'w')"),
    "exec": lambda: Call(exec, "open('ran', 'w')"),
    "open": lambda: Call(open, "ran", "w"),
    "import": lambda: Call(__import__, "os"),
    "Path": lambda: Path("ran"),
    "array": lambda: np.zeros(3),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_names_anything_but_tensors_runs_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch, call: str, form: str, protocol: int
) -> None:
    monkeypatch.chdir(model)
    value = CALLS[call]()
    content = pickled({**state(), "extra": value}) if protocol == 2 else pickle.dumps({"shared.weight": value}, 4)
    if form == "zip":
        write_archive(model / "pytorch_model.bin", content)
    else:
        begin = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
        (model / "pytorch_model.bin").write_bytes(begin + content + pickle.dumps([], 2))
    refused(model, "weights.unsafe-pickle", "pytorch_model.bin")
    assert sorted(path.name for path in model.iterdir()) == ["config.json", "pytorch_model.bin"]
    if protocol == 4 and call in ("os.system", "eval", "exec", "open"):  # which Python's own reader does run
        pickle.loads(content)
        assert (model / "ran").exists()


@pytest.mark.parametrize(
    ("opcode", "code"),
    [
        (b"ios\nsystem\n", "weights.unsafe-pickle"),
        (b"(S'touch ran'\nios\nsystem\n.", "weights.unsafe-pickle"),
        (b"\x80\x02}\x81.", "weights.unsafe-pickle"),
        (b"\x80\x02\x8c\x01a\x93.", "weights.damaged"),
        (b"", "weights.damaged"),
    ],
)
def test_other_instructions_of_pickles_are_refused(model: Path, opcode: bytes, code: str) -> None:
    write_archive(model / "pytorch_model.bin", opcode)
    refused(model, code, "pytorch_model.bin")


_STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\n%sX\x03\0\0\0cpuK\x04tQ"
_TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(" + _STORAGE % b"X\x01\0\0\x000" + b"K\0K\x04\x85K\x01\x85\x89}tR"
_STATE = b"}X\x05\0\0\0shapeX\x03\0\0\0abcsb"


@pytest.mark.parametrize(
    "content",
    [
        _TENSOR + _STATE,
        _STORAGE % b"X\x01\0\0\x000" + _STATE,
        b"ctorch._utils\n_rebuild_tensor\n" + _STATE,
        b"ctorch._utils\n_rebuild_tensor\nN}X\x08\0\0\0functionNs\x86b",
        b"}(" + b")" + b"\x85" * 1_000_000 + b"Nu",  # its hash would overflow the stack
        _STORAGE % (b"]" * 3000 + b"a" * 2999),
        # Each is a pair of the one before, so the last has a hash of 2^40.
        b"})" + b"".join(b"q%ch%ch%c\x86" % (n, n, n) for n in range(1, 41)) + b"Ns",
    ],
    ids=[
        "state of a tensor",
        "of a storage",
        "of a function",
        "slots of a function",
        "a deep key",
        "a deep name",
        "pairs",
    ],
)
def test_a_pickle_that_changes_what_it_made_or_nests_deeply_is_refused(model: Path, content: bytes) -> None:
    write_archive(model / "pytorch_model.bin", b"\x80\x02" + content + b".")
    refused(model, "weights.unsafe-pickle", "pytorch_model.bin")


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 1},
        {"offset": -1},
        {"strides": (1 << 60, 1)},
        {"strides": (-8, 1)},
        {"shape": (1 << 40, 8)},
        {"shape": (-40, 8)},
        {"key": "nowhere"},
    ],
)
def test_a_tensor_that_reaches_beyond_its_storage_is_refused(model: Path, change: dict[str, Any]) -> None:
    arguments = {"key": "0", "shape": (40, 8), **change}
    write_archive(model / "pytorch_model.bin", pickled({**state(), "shared.weight": tensor(**arguments)}))
    refused(model, "weights.damaged", "pytorch_model.bin")


def test_compressed_and_big_endian_archives_are_refused(model: Path) -> None:
    write_archive(model / "pytorch_model.bin", pickled(state()), compression=zipfile.ZIP_DEFLATED)
    refused(model, "weights.unsupported-format", "pytorch_model.bin", "compressed")
    write_archive(model / "pytorch_model.bin", pickled(state()), extra={"archive/byteorder": b"big"})
    refused(model, "weights.unsupported-format", "pytorch_model.bin", "big-endian")


def _written(model: Path) -> dict[str, Path]:
    """The same weights in each format."""
    weights = random_weights(TINY)
    tensors = {}
    for name, layout in weight_layouts(TINY).items():
        rows = weights[name].reshape(-1, *layout.shape[layout.stacked_axes :])
        tensors |= {t: row.T if layout.transposed else row for t, row in zip(layout.tensors, rows, strict=True)}
    save_weights(model, TINY, weights)
    model_formats.write_flax(model / "flax_model.msgpack", tensors)
    write_archive(model / "pytorch_model.bin", pickled(state()))
    return {path.name: path for path in model.iterdir() if path.name != "config.json"}


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "flax_model.msgpack"])
def test_a_file_cut_anywhere_is_one_sentence(model: Path, name: str) -> None:
    files = _written(model)
    content = files.pop(name).read_bytes()
    for path in files.values():
        path.unlink()
    load_weights(model)
    for size in sorted({0, 1, 7, 9, 64, 300, len(content) // 3, len(content) // 2, len(content) - 1}):
        (model / name).write_bytes(content[:size])
        headless = name == "model.safetensors" and int.from_bytes(content[: min(size, 8)], "little") < 2
        refused(model, "weights.wrong-format" if headless else "weights.damaged", name)
    (model / name).write_bytes(b"<html>not a model</html>" * 100)
    refused(model, "weights.wrong-format" if name == "model.safetensors" else "weights.damaged", name)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "flax_model.msgpack"])
def test_a_file_with_any_byte_changed_is_read_or_is_one_sentence(model: Path, name: str) -> None:
    files = _written(model)
    content = bytearray(files.pop(name).read_bytes())
    for path in files.values():
        path.unlink()
    rng = np.random.default_rng(3)
    for _ in range(60):
        offset, value = int(rng.integers(min(len(content), 3000))), int(rng.integers(256))
        changed = content.copy()
        changed[offset] = value
        (model / name).write_bytes(changed)
        with contextlib.suppress(UsageError):  # any other error is a failure
            load_weights(model)


def test_formats_are_preferred_in_order_and_a_part_that_is_missing_is_named(model: Path) -> None:
    files = _written(model)
    shared = dict.fromkeys(files)
    for name in ("model.safetensors", "pytorch_model.bin", "flax_model.msgpack"):
        shared[name] = np.asarray(load_weights(model)[1]["shared"])
        files[name].unlink()
    assert (shared["pytorch_model.bin"] == 0).all()  # the archive's are not the others'
    assert np.array_equal(shared["model.safetensors"], shared["flax_model.msgpack"])
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../part.safetensors"}}))
    refused(model, "weights.missing-file", "../part.safetensors", "model.safetensors.index.json")
    (model / "model.safetensors.index.json").write_text("[]")
    refused(model, "weights.damaged", "model.safetensors.index.json")


def test_places_that_are_no_whole_numbers_are_refused(model: Path) -> None:
    for places in ([0.0, 8.0], [False, 8]):
        header = json.dumps({"shared.weight": {"dtype": "F32", "shape": [2], "data_offsets": places}}).encode()
        (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
        refused(model, "weights.damaged", "model.safetensors")


def test_weights_of_whole_numbers_and_of_unknown_dtypes_are_refused(model: Path) -> None:
    for dtype, *error in (
        ("I8", "weights.quantized", "shared.weight", "int8"),
        ("I7", "weights.unsupported-dtype", "I7"),
    ):
        header = json.dumps({"shared.weight": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2]}}).encode()
        (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"ab")
        refused(model, *error)


def test_a_tensor_before_the_first_value_is_refused(model: Path) -> None:
    """Bytes of the header would else be weights."""
    for places in ([-8, 0], [-16, -8]):
        header = json.dumps({"shared.weight": {"dtype": "F32", "shape": [2], "data_offsets": places}}).encode()
        (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
        refused(model, "weights.damaged", "model.safetensors")


def test_a_compressed_byteorder_is_refused_before_it_is_unpacked(model: Path) -> None:
    path = model / "pytorch_model.bin"
    write_archive(path, pickled(state()))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/byteorder", b"little" + bytes(1 << 20), zipfile.ZIP_DEFLATED)
    refused(model, "weights.unsupported-format", "pytorch_model.bin", "compressed")
    write_archive(path, pickled(state()), extra={"archive/byteorder": b"little" + bytes(1 << 20)})
    refused(model, "weights.unsupported-format", "pytorch_model.bin", "big-endian")


@pytest.mark.parametrize(
    ("keys", "count"),
    [(None, 0), ({"0": 1}, 0), ([1.5], 0), (["0"], (1 << 63) - 1), (["0"], 1 << 40), (["0"], -1)],
)
def test_storages_of_the_old_format_that_cannot_be_are_refused(model: Path, keys: Any, count: int) -> None:
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    content = b"".join(pickle.dumps(part, 2) for part in parts) + pickled(state()) + pickle.dumps(keys, 2)
    (model / "pytorch_model.bin").write_bytes(content + struct.pack("<q", count) + bytes(64))
    refused(model, "weights.damaged", "pytorch_model.bin")


def test_buffers_of_whole_numbers_are_passed_over_in_a_pickle(model: Path) -> None:
    tensors = {"position_ids": tensor("0", (1, 16), kind=LongStorage), **state()}
    write_archive(model / "pytorch_model.bin", pickled(collections.OrderedDict(tensors)))
    messages: list[str] = []
    load_weights(model, say=messages.append)
    assert messages == [f"Ignoring tensors of {model} that this model does not use: position_ids."]
