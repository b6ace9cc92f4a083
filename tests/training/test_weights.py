import dataclasses
import json

import numpy as np
import pytest
from raised import raises
from safetensors.numpy import load_file, save_file

from t5prep.errors import UsageError
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import load_weights, random_weights, save_weights

TIED = ModelConfig(vocab_size=40, d_model=8, d_kv=4, d_ff=12, num_layers=3, num_decoder_layers=2, num_heads=3)
UNTIED = dataclasses.replace(
    TIED, feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False
)


def write(directory, config, weights):
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config.to_json()))
    return save_weights(directory, config, weights)


@pytest.mark.parametrize("config", [TIED, UNTIED], ids=["tied", "untied"])
def test_safetensors_come_back_bit_for_bit(config, tmp_path):
    first = write(tmp_path / "a", config, random_weights(config))
    read, weights = load_weights(tmp_path / "a")
    assert read == config
    second = write(tmp_path / "b", read, weights)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["config.json", "model.safetensors"]


def test_a_slice_of_a_stack_is_the_transposed_tensor(tmp_path):
    weights = random_weights(TIED)
    tensors = load_file(write(tmp_path, TIED, weights))
    np.testing.assert_array_equal(
        tensors["decoder.block.1.layer.1.EncDecAttention.v.weight"].T, weights["decoder.cross_kv"][1, 1]
    )
    np.testing.assert_array_equal(tensors["encoder.block.2.layer.1.layer_norm.weight"], weights["encoder.norms"][2, 1])


def test_a_sharded_checkpoint_is_read_through_its_index(tmp_path):
    weights = random_weights(UNTIED)
    path = write(tmp_path, UNTIED, weights)
    tensors = load_file(path)
    path.unlink()
    parts = {"one.safetensors": dict(list(tensors.items())[::2]), "two.safetensors": dict(list(tensors.items())[1::2])}
    for name, part in parts.items():
        save_file(part, tmp_path / name)
    index = {"weight_map": {tensor: name for name, part in parts.items() for tensor in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    read = load_weights(tmp_path)[1]
    assert all(np.array_equal(read[name], weights[name]) for name in weights)


def test_the_file_settles_whether_embeddings_are_tied(tmp_path):
    path = write(tmp_path, UNTIED, random_weights(UNTIED))
    tensors = load_file(path)
    del tensors["lm_head.weight"]
    save_file(tensors, path)
    config, weights = load_weights(tmp_path)
    assert config.tie_word_embeddings
    assert "lm_head" not in weights
    # A model tied by its config whose file has an lm_head of its own, as transformers 5 writes it.
    tensors["lm_head.weight"] = tensors["shared.weight"] + 1
    save_file(tensors, path)
    (tmp_path / "config.json").write_text(json.dumps(TIED.to_json() | {"feed_forward_proj": "gated-gelu"}))
    assert not load_weights(tmp_path)[0].tie_word_embeddings


def test_an_embedding_kept_under_an_alias_is_found(tmp_path):
    path = write(tmp_path, TIED, random_weights(TIED))
    tensors = load_file(path)
    shared = tensors["lm_head.weight"] = tensors.pop("shared.weight")
    save_file(tensors, path)
    np.testing.assert_array_equal(load_weights(tmp_path)[1]["shared"], shared)


def test_random_weights_are_t5s_and_the_same_for_the_same_seed():
    config = ModelConfig(vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_decoder_layers=2, num_heads=8)
    weights = random_weights(config, seed=3)
    for name, layout in weight_layouts(config).items():
        if layout.stddev is None:
            assert (weights[name] == 1).all()
        elif weights[name].size > 10_000:
            assert weights[name].std() == pytest.approx(layout.stddev, rel=0.05)
    assert np.array_equal(weights["encoder.q"], random_weights(config, seed=3)["encoder.q"])
    assert not np.array_equal(weights["encoder.q"], random_weights(config, seed=4)["encoder.q"])
    assert not np.array_equal(weights["encoder.q"][0], weights["encoder.q"][1])


def test_a_model_without_weights_is_refused_with_what_is_looked_for(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TIED.to_json()))
    with raises(UsageError, "weights.not-found", "model.safetensors, pytorch_model.bin, flax"):
        load_weights(tmp_path)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("tf_model.h5", "from_pretrained('{0}', from_tf=True).save_pretrained"),
        ("tf_model.h5.index.json", "from_pretrained('{0}', from_tf=True).save_pretrained"),
        ("_METADATA", "StandardCheckpointer().restore(os.path.abspath('{0}')"),
    ],
)
def test_a_format_that_is_not_read_is_refused_with_the_converting_command(tmp_path, name, command):
    (tmp_path / name).write_bytes(b"{}")
    for _ in range(2):
        with raises(
            UsageError, "weights.unsupported-format", name.removesuffix(".index.json"), command.format(tmp_path)
        ):
            load_weights(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(TIED.to_json()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda tensors: tensors.pop("encoder.final_layer_norm.weight"),
            ("weights.missing-tensor", "encoder.final_layer_norm.weight"),
        ),
        (lambda tensors: tensors.pop("shared.weight"), ("weights.missing-tensor", "shared.weight")),
        (
            lambda tensors: tensors.update({"encoder.block.3.layer.0.SelfAttention.q.weight": np.ones(3)}),
            ("weights.unknown-tensor", "encoder.block.3.layer.0.SelfAttention.q.weight"),
        ),
        (
            lambda tensors: tensors.update({"shared.weight": np.zeros((3, 8), np.float32)}),
            ("weights.shape-mismatch", "3, 8"),
        ),
    ],
)
def test_a_file_that_is_not_this_model_is_refused(change, message, tmp_path):
    path = write(tmp_path, TIED, random_weights(TIED))
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    with raises(UsageError, *message):
        load_weights(tmp_path)


def test_a_damaged_file_and_a_missing_config_are_refused(tmp_path):
    with raises(UsageError, "model.missing-config"):
        load_weights(tmp_path)
    write(tmp_path, TIED, random_weights(TIED)).write_bytes(b"not safetensors")
    with raises(UsageError, "weights.wrong-format"):
        load_weights(tmp_path)


@pytest.mark.parametrize(
    ("name", "code"), [("no/such/directory", "hub.not-found"), ("nobody/no-such-model", "hub.unavailable")]
)
def test_a_name_that_leads_nowhere_is_refused(name, code, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with raises(UsageError, code, f'"{name}"'):
        load_weights(name)
