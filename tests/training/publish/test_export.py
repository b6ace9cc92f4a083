"""What is exported, `transformers` loads in PyTorch as the model it was: every family, by logits and generated ids."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import torch_process
import toy_runs
from raised import raises
from torch_t5 import FAMILIES, draw_batch

from t5prep.errors import UsageError
from t5prep.options.models import ExportOptions
from t5prep.tokens import loading
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.beam_search import generate
from t5prep.training.model.forward import forward
from t5prep.training.model.weights import load_weights, random_weights, save_weights
from t5prep.training.publish.export import export_hf, export_saved_model
from t5prep.training.run import checkpoints, run
from t5prep.training.settings import train_config

LENGTH = 6
CONFIGS = {family: ModelConfig.from_json(config) for family, config in FAMILIES.items()}
# What transformers 5 makes of a T5 1.1 that it draws at random: one matrix, and outputs that are not scaled.
CONFIGS["t5_1_1_tied"] = dataclasses.replace(CONFIGS["t5_1_1"], tie_word_embeddings=True)

# transformers 5 divides what umT5's decoder gives by sqrt(d_model), as if it were T5 1.0, while its config says "tied".
# In a process of its own: torch and TensorFlow each bring an LLVM, and the two end the process where both are loaded.
THEIRS = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from transformers import AutoModelForSeq2SeqLM
place = Path(sys.argv[1])
for family in sys.argv[2:]:
    model, loaded = AutoModelForSeq2SeqLM.from_pretrained(place / "exported" / family, output_loading_info=True)
    said_tied, model.config.tie_word_embeddings = model.config.tie_word_embeddings, "umt5" not in family
    batch = {name: torch.tensor(value).long() for name, value in np.load(place / f"{family}.npz").items()}
    with torch.no_grad():
        logits = model.eval()(**batch).logits
        asked = {name: batch[name] for name in ("input_ids", "attention_mask")}
        found = {f"beams {n}": model.generate(**asked, num_beams=n, **HOW)[:, 1:] for n in (1, 3)}
    np.savez(place / f"{family}.theirs.npz", logits=logits, **found)
    said = {name: sorted(loaded[name]) for name in ("missing_keys", "unexpected_keys")}
    said["tied"] = model.lm_head.weight.data_ptr() == model.shared.weight.data_ptr()
    (place / f"{family}.json").write_text(json.dumps(said))
    model.config.tie_word_embeddings = said_tied
    model.save_pretrained(place / "again" / family)
""".replace("HOW", repr({"max_new_tokens": LENGTH, "do_sample": False, "early_stopping": False}))


def _sharp(config: ModelConfig) -> dict[str, np.ndarray]:
    """Random weights of which not every answer is one token for ever."""
    weights = random_weights(config, seed=1)
    for name in ("decoder.out", "decoder.wo"):
        weights[name] *= np.float32(8.0)
    return weights


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_numbers_are_not_copied(tmp_path: Path, value: float) -> None:
    config = CONFIGS["t5_1_1"]
    weights = random_weights(config, seed=1)
    weights["decoder.out"] = np.array(weights["decoder.out"])
    path = save_weights(tmp_path, config, weights)
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
    number = next(iter(weights["decoder.out"].ravel()))
    assert path.read_bytes().count(number.tobytes()) == 1
    path.write_bytes(path.read_bytes().replace(number.tobytes(), np.float32(value).tobytes()))
    for export in (export_hf, export_saved_model):
        with raises(UsageError, "weights.nonfinite", "decoder.out"):
            export(str(tmp_path), out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of what transformers says of each family's export."""
    folder = tmp_path_factory.mktemp("exports")
    for family, config in CONFIGS.items():
        save_weights(folder / family, config, _sharp(config))
        (folder / family / "config.json").write_text(json.dumps(config.to_json()))
        export_hf(str(folder / family), out=str(folder / "exported" / family))
        np.savez(folder / f"{family}.npz", **draw_batch(config.vocab_size))
    torch_process.pytorch_code(THEIRS, folder, *CONFIGS)
    return folder


@pytest.mark.extra("torch")
@pytest.mark.parametrize("family", CONFIGS)
def test_transformers_computes_and_generates_the_same(theirs: Path, family: str) -> None:
    config, weights = CONFIGS[family], {name: tf.constant(value) for name, value in _sharp(CONFIGS[family]).items()}
    batch = {name: tf.constant(value) for name, value in draw_batch(config.vocab_size).items()}
    reference = np.load(theirs / f"{family}.theirs.npz")
    # A logit near zero is a sum of products as large as the largest logit's: its error is a part of that one, not of zero.
    expected = reference["logits"]
    np.testing.assert_allclose(forward(weights, config, batch), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    for beams in (1, 3):
        expected = reference[f"beams {beams}"]
        # Behind the first EOS transformers' beam search writes more of them: it takes a pad id of 0 for none.
        after_eos = np.cumsum(expected == config.eos_token_id, axis=1) - (expected == config.eos_token_id) > 0
        inputs = (batch["input_ids"], batch["attention_mask"])
        ids = generate(weights, config, *inputs, max_length=LENGTH, beams=beams).numpy()
        assert ids[:, : expected.shape[1]].tolist() == np.where(after_eos, 0, expected).tolist()
        assert not ids[:, expected.shape[1] :].any()
        assert len(set(map(tuple, ids.tolist()))) > 1
    loading_info = json.loads((theirs / f"{family}.json").read_text())
    written = json.loads((theirs / "exported" / family / "config.json").read_text())
    assert written["tie_word_embeddings"] == config.tie_word_embeddings  # by which transformers 4 knows
    card = (theirs / "exported" / family / "README.md").read_text()
    assert ("They should, as in every T5 1.1" in card) != config.tie_word_embeddings
    assert loading_info == {"missing_keys": [], "unexpected_keys": [], "tied": config.tie_word_embeddings}


@pytest.mark.extra("torch")
@pytest.mark.parametrize("family", CONFIGS)
def test_what_transformers_saves_is_read_back_bit_for_bit(theirs: Path, family: str) -> None:
    """Its config.json says that embeddings are tied, whatever they are."""
    config, weights = load_weights(theirs / "again" / family)
    assert config == CONFIGS[family]
    expected = _sharp(config)
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_runs_best_checkpoint_is_opened_and_exported_as_the_model_that_it_is(tmp_path: Path, family: str) -> None:
    config, weights, out = CONFIGS[family], _sharp(CONFIGS[family]), str(tmp_path / "run")
    settings = train_config.build({"model": "m", "data": ("d",), "out": out})
    run.begin(out, config=settings, shape=config, tokenizer=loading.load("sample:"), datasets=())
    state = checkpoints.State(step=1, config=dataclasses.asdict(settings), data=[], tokenizer="", metric="loss")
    worse = {name: value + 1 for name, value in weights.items()}
    for step, loss, values in ((1, 0.5, weights), (2, 0.7, worse)):
        reached = dataclasses.replace(state, step=step, value=loss)
        checkpoints.save(out, toy_runs.writer(values), state=reached, keep=1)
    opened = run.open_model(out)
    assert opened.config == config
    assert all(np.array_equal(opened.weights[name], weights[name]) for name in weights)
    # The best is exported, not the last, unless asked.
    for checkpoint, expected in (("best", weights), ("last", worse)):
        export_hf(out, out=str(tmp_path / checkpoint), options=ExportOptions(checkpoint=checkpoint))
        exported = load_weights(tmp_path / checkpoint)[1]
        assert all(np.array_equal(exported[name], expected[name]) for name in expected)


def test_a_saved_model_answers_any_number_of_rows_as_we_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS["t5_1_1"]
    short = dataclasses.replace(run.settings_without_data(config), input_length=9, target_length=LENGTH)
    monkeypatch.setattr(run, "settings_without_data", lambda _: short)
    save_weights(tmp_path / "model", config, _sharp(config))
    (tmp_path / "model" / "config.json").write_text(json.dumps(config.to_json()))
    export_saved_model(str(tmp_path / "model"), out=str(tmp_path / "saved"), rows=4)
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    inputs, length = serve.structured_input_signature[1]["input_ids"].shape[1], 0
    random_ids = np.random.default_rng(2).integers(2, config.vocab_size, (5, 7))
    ids = np.pad(random_ids, [(0, 0), (0, inputs - 7)]).astype(np.int32)
    answers = {count: serve(input_ids=tf.constant(ids[:count]))["output_ids"].numpy() for count in (0, 1, 5)}
    length = answers[5].shape[1]
    weights = {name: tf.constant(value) for name, value in _sharp(config).items()}
    expected = generate(weights, config, tf.constant(ids), tf.constant((ids != 0).astype(np.int32)), max_length=length)
    assert answers[5].tolist() == expected.numpy().tolist()
    assert answers[1].tolist() == expected.numpy()[:1].tolist()
    assert answers[0].shape == (0, length)
