"""Models of the Hub: only what is needed is fetched, and errors name the model as the user did."""

import json
from pathlib import Path

import numpy as np
import pytest
from raised import raises
from servers.http import Answer, Fault
from servers.internet import Internet

from t5prep.errors import TokenizerError, UsageError
from t5prep.planning.model_shapes import shape_of
from t5prep.tokens import loading
from t5prep.training.model.weights import load_config, load_weights
from t5prep.training.run import run
from t5prep.training.settings.train_config import build

GOLDEN = Path(__file__).parents[2] / "data" / "published"
NAME = "somebody/some-t5"


def publish(internet: Internet, files: dict[str, bytes]) -> None:
    internet.hub.models[NAME] = files


def golden(kind: str) -> dict[str, bytes]:
    folder = GOLDEN / kind
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".npz" and path.is_file()}


def fetched(internet: Internet) -> list[str]:
    """The files that were asked for, and each no more than once in full."""
    paths = [request.path.rpartition("/")[2] for request in internet.server.requests if request.method == "GET"]
    return [path for path in paths if "." in path]


def test_a_shape_fetches_the_config_alone(internet: Internet) -> None:
    publish(internet, golden("t5/flax") | {"model.safetensors": b"never read", "spiece.model": b"nor this"})
    assert load_config(NAME).d_model == 8
    assert fetched(internet) == ["config.json"]
    settings = build({"model": NAME, "weights": "random"})
    assert run.start_from(settings, ids=100)[0].vocab_size == 128
    assert shape_of(NAME).d_model == 8
    assert set(fetched(internet)) == {"config.json"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("t5/flax", ["flax_model.msgpack"]),
        (
            "t5_1_1/flax/sharded",
            [*(f"flax_model-0000{part}-of-00002.msgpack" for part in (1, 2)), "flax_model.msgpack.index.json"],
        ),
    ],
)
def test_only_the_files_of_one_format_are_fetched(
    internet: Internet, monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[str]
) -> None:
    unused_files = {"rust_model.ot": b"", "opt_state.msgpack": b"", "README.md": b"", "training_args.bin": b""}
    publish(internet, golden(kind) | unused_files)
    weights = load_weights(NAME)[1]
    assert sorted(fetched(internet)) == ["config.json", *expected]
    assert np.array_equal(weights["shared"], load_weights(GOLDEN / kind)[1]["shared"])
    # What was fetched is there when the network is not.
    internet.server.faults.append(Fault("/api/models", times=99, answer=Answer(500)))
    assert np.array_equal(load_weights(NAME)[1]["shared"], weights["shared"])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert np.array_equal(load_weights(NAME)[1]["shared"], weights["shared"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, ("model.missing-config",)),
        ({"config.json": b"{"}, ("model.invalid-config",)),
        ({"config.json": b"{}"}, ("model.invalid-config",)),
        ({"manifest.json": b"{}"}, ("model.dataset-folder",)),
        (golden("t5/flax") | {"flax_model.msgpack": b"cut"}, ("weights.damaged", "flax_model.msgpack")),
        (
            golden("t5/flax") | {"pytorch_model.bin": b"cut"},
            ("weights.damaged", "pytorch_model.bin"),
        ),
        ({"config.json": golden("t5/flax")["config.json"]}, ("weights.not-found", "model.safetensors")),
        (
            golden("t5_1_1/flax/sharded") | {"config.json": golden("t5/flax")["config.json"]},
            ("weights.missing-tensor", "decoder.block.0.layer.2"),
        ),
    ],
)
def test_errors_name_the_model_and_no_cache(
    internet: Internet, files: dict[str, bytes], message: tuple[str, ...]
) -> None:
    publish(internet, files)
    with raises(UsageError, *message, NAME) as raised:
        load_weights(NAME)
    assert "snapshots" not in str(raised.value)
    assert str(Path.home()) not in str(raised.value)


def test_models_that_are_not_there(internet: Internet) -> None:
    for name in ("nobody/no-such-model", "no-such-model"):
        with raises(UsageError, "hub.not-found", str(name)):
            load_weights(name)
        with raises(TokenizerError, "hub.not-found"):
            loading.load(name)
    internet.server.faults.append(Fault("/api/models", times=99, answer=Answer(500)))
    with raises(UsageError, "hub.unavailable"):
        load_weights("nobody/another")


def test_a_tokenizer_fetches_its_own_files_only(internet: Internet) -> None:
    from t5prep.sources import sample
    from t5prep.tokens import huggingface_files

    tokenizer = loading.load("sample:")
    content = json.dumps(huggingface_files.tokenizer_json(tokenizer)).encode()
    model = sample.tokenizer_path().read_bytes()
    files = {"spiece.model": model, "tokenizer_config.json": b"{}", "pytorch_model.bin": b"0" * 99}
    publish(internet, {"tokenizer.json": content, **files})
    assert loading.load(NAME).model == model
    # The small one tells a T5 from an ALBERT; the ids of both large ones must be the same.
    assert set(fetched(internet)) == {"tokenizer_config.json", "spiece.model", "tokenizer.json"}
    publish(internet, {"tokenizer.json": b"{", **files})
    with raises(TokenizerError, "tokenizer.damaged"):
        loading.load(NAME)
    publish(internet, {"config.json": b"{}", "pytorch_model.bin": b""})
    with raises(TokenizerError, "tokenizer.missing-file", str(NAME)):
        loading.load(NAME)


def test_a_byt5_is_known_by_its_tokenizers_class(internet: Internet) -> None:
    tokenizer_config = json.dumps({"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}).encode()
    publish(
        internet, {"config.json": b"{}", "tokenizer_config.json": tokenizer_config, "special_tokens_map.json": b"{}"}
    )
    assert loading.load(NAME).encode("é") == [0xC3 + 3, 0xA9 + 3]
    publish(internet, {"config.json": tokenizer_config})
    assert loading.load(NAME).vocab_size == 259
