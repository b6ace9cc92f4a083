"""Models of sentence-transformers: their own files decide pooling, matrices and length, as its `encode` does, or one sentence."""

import json
from pathlib import Path
from typing import Any

import encoders
import numpy as np
import pytest
import torch_process
from raised import raises
from safetensors.numpy import save_file

import t5prep
from t5prep.errors import SourceError, UsageError
from t5prep.io import model_files
from t5prep.training.embed import sentence_recipe
from t5prep.training.embed.sentence_recipe import normalize
from t5prep.training.model.architecture import read_config
from t5prep.training.model.weights import random_weights, save_weights
from tests.training.embed.test_embedding import texts_of

SHAPE = {
    **{"model_type": "bert", "vocab_size": 200, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 32, "max_position_embeddings": 64},
}
TEXTS = [
    "a gorgeous , witty movie .",
    "Unflinchingly BLEAK",
    "movie",
    "it 's a charming and often affecting journey . " * 6,
]
TANH, IDENTITY = "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity"
SOURCE = "sentence_transformers.models"
CLS = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
MEAN = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def dense(width: int, *, seed: int, activation: str, bias: bool = True) -> tuple[str, dict[str, Any]]:
    return "Dense", {
        "in_features": width,
        "out_features": 12,
        "bias": bias,
        "activation_function": activation,
        "seed": seed,
    }


def write(folder: Path, *modules: tuple[str, dict[str, Any]], length: int = 24, **settings: Any) -> Path:
    """A tiny BERT, cased, with its modules: the files that SentenceTransformer.save_pretrained writes."""
    encoders.bert(folder, lowercase=False)
    (folder / "config.json").write_text(json.dumps(SHAPE))
    config = read_config(json.dumps(SHAPE).encode(), location=folder)
    save_weights(folder, config, random_weights(config, seed=2))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": length, "do_lower_case": False, **settings})
    )
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{SOURCE}.Transformer"}]
    for number, (kind, about) in enumerate(modules, 1):
        module_folder = folder / f"{number}_{kind}"
        module_folder.mkdir()
        listed.append({"idx": number, "name": str(number), "path": module_folder.name, "type": f"{SOURCE}.{kind}"})
        if kind == "Dense":
            generator = np.random.default_rng(about.pop("seed"))
            matrix = generator.normal(size=(about["out_features"], about["in_features"])).astype(np.float32) / 3
            tensors = {"linear.weight": matrix}
            if about["bias"]:
                tensors["linear.bias"] = generator.normal(size=about["out_features"]).astype(np.float32)
            save_file(tensors, module_folder / "model.safetensors")
        (module_folder / "config.json").write_text(json.dumps(about))
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def embedded(model: Path, out: Path, texts: list[str] = TEXTS, **options: Any) -> np.ndarray:
    t5prep.embed(str(model), texts, out=str(out), dtype="float32", **options)
    return np.stack(list(texts_of(out).values()))


RECIPES: dict[str, tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]] = {
    "all-MiniLM-L6-v2": ([("Pooling", MEAN), ("Normalize", {})], {}),
    "BAAI/bge-small-en": ([("Pooling", CLS), ("Normalize", {})], {}),
    "LaBSE": ([("Pooling", CLS), dense(16, seed=1, activation=TANH), ("Normalize", {})], {}),
    "sentence-t5": ([("Pooling", MEAN), dense(16, seed=2, activation=IDENTITY, bias=False), ("Normalize", {})], {}),
    "two matrices": (
        *([("Pooling", MEAN), dense(16, seed=3, activation=TANH), dense(12, seed=4, activation="torch.nn.ReLU")], {}),
    ),
    "of sentence-transformers 6": ([("Pooling", {"embedding_dimension": 16, "pooling_mode": "mean"})], {"length": 9}),
    "in lower case": ([("Pooling", MEAN), ("Dropout", {"dropout": 0.1})], {"do_lower_case": True}),
    "no pooling named": ([("Pooling", {"word_embedding_dimension": 16, "pooling_mode_cls_token": False})], {}),
}


ENCODED = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
models, texts = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for model in models:
    np.save(f"{model}/encoded.npy", SentenceTransformer(model, device="cpu").encode(texts))
"""


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of each recipe's model, with what sentence-transformers makes of TEXTS, by one process for all."""
    folder = tmp_path_factory.mktemp("encoded")
    models = {}
    for number, (name, (modules, settings)) in enumerate(RECIPES.items()):
        models[name] = write(folder / str(number), *[(kind, dict(about)) for kind, about in modules], **settings)
    arguments = [json.dumps([str(model) for model in models.values()]), json.dumps(TEXTS)]
    torch_process.pytorch_code(ENCODED, *arguments)
    return models


@pytest.mark.extra("sentence_transformers")
@pytest.mark.parametrize("name", RECIPES)
def test_vectors_are_those_of_sentence_transformers(encoded: dict[str, Path], name: str, tmp_path: Path) -> None:
    expected = np.load(encoded[name] / "encoded.npy")
    np.testing.assert_allclose(embedded(encoded[name], tmp_path / "out"), expected, atol=2e-6)


def test_a_recipe_is_pooling_then_matrices_in_their_order(tmp_path: Path) -> None:
    """Without sentence-transformers: the same from the vectors of tokens."""
    layer, second = dense(16, seed=1, activation=TANH), dense(12, seed=2, activation=IDENTITY, bias=False)
    model = write(tmp_path / "model", ("Pooling", MEAN), layer, ("Normalize", {}), second)
    recipe = sentence_recipe.read(model_files.find(model))
    assert recipe is not None
    first, _, last = recipe.after_pooling
    assert first is not None
    assert last is not None
    pooled = embedded(model, tmp_path / "pooled", pooling="mean")
    expected = normalize(np.tanh(pooled @ first.matrix + first.bias)) @ last.matrix
    np.testing.assert_allclose(embedded(model, tmp_path / "whole"), expected, atol=1e-6)
    assert recipe.length == 24
    manifest = json.loads((tmp_path / "whole" / "manifest.json").read_text())
    assert (manifest["width"], manifest["length"], manifest["pooling"]) == (12, 24, "mean")


def test_a_prompt_stands_before_each_text(tmp_path: Path) -> None:
    model = write(tmp_path / "model", ("Pooling", MEAN))
    with_prompt = [f"movie : {text}" for text in TEXTS]
    expected = embedded(model, tmp_path / "plain", texts=with_prompt)
    prompts = {"prompts": {"query": "movie : ", "other": "x"}, "default_prompt_name": "query"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    np.testing.assert_array_equal(embedded(model, tmp_path / "prompt"), expected)


@pytest.mark.parametrize(
    ("modules", "step"),
    [
        ([("Pooling", {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False})], "pooling by max"),
        ([("Pooling", {"pooling_mode": ["cls", "mean"]})], "pooling by cls and mean"),
        ([("Pooling", {"pooling_mode": "mean", "include_prompt": False})], "pooling without the prompt"),
        ([("Pooling", MEAN), ("LSTM", {})], "LSTM"),
        ([("WeightedLayerPooling", {}), ("Pooling", MEAN)], "WeightedLayerPooling"),
    ],
)
def test_steps_that_are_not_computed_are_refused_and_a_choice_is_said(
    modules: list[tuple[str, dict[str, Any]]], step: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "model", *modules)
    with raises(UsageError, "model.unsupported-pooling", str(step)):
        embedded(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    embedded(model, tmp_path / "out", pooling="mean", normalize=True)
    assert (
        f"own recipe: {'mean pooling, ' if 'Pooling' in modules[-1][0] and step[0] != 'p' else ''}"
        in capfd.readouterr().err
    )


def test_a_dense_layer_that_is_left_out_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = write(tmp_path / "model", ("Pooling", MEAN), dense(16, seed=1, activation=TANH), ("Normalize", {}))
    embedded(model, tmp_path / "out", pooling="mean", normalize=True)
    assert "mean pooling, Dense, Normalize." in capfd.readouterr().err


@pytest.mark.parametrize(
    ("file", "content"), [("modules.json", "{"), ("modules.json", "[1]"), ("2_Dense/config.json", '{"in_features": 3}')]
)
def test_a_damaged_recipe_is_one_sentence(file: str, content: str, tmp_path: Path) -> None:
    model = write(tmp_path / "model", ("Pooling", MEAN), dense(16, seed=1, activation=TANH))
    (model / file).write_text(content)
    with raises(UsageError, "model.invalid-config", "modules.json"):
        embedded(model, tmp_path / "out")


@pytest.mark.parametrize("rows", [[{"input": {"en": "a movie"}}] * 3, [{"input": 5}], [{"input": None}]])
def test_a_source_without_any_text_is_refused(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    model = write(tmp_path / "model", ("Pooling", MEAN))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with raises(SourceError, "row.text-missing", f" {len(rows)} ", "rows.jsonl"):
        t5prep.embed(str(model), tmp_path / "rows.jsonl", out=str(tmp_path / "out"), column="input")
    assert not (tmp_path / "out").exists()
