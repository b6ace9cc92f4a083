"""Export a run for other software: a Hugging Face directory that transformers loads in PyTorch, or a SavedModel.

The best checkpoint is exported unless another is named. The directory appears complete or not at all.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.io import atomic_files
from t5prep.tokens import huggingface_files
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.train import adapters, card, card_header, run
from t5prep.train.model.generate import generate
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.weights import create_variables, save_weights
from t5prep.train.predict import answer_length
from t5prep.train.text_signature import TextSignature

# Rows that a SavedModel generates in one batch.
ROWS = 8


def export_hf(
    model: str, *, out: str, which: str = "best", dtype: str = "float32", licence: str = "", merge: bool = False
) -> str:
    """Write config, safetensors, tokenizer, generation config, model card and manifests; return the checkpoint's name.

    A run with adapters (LoRA) gives adapters in the layout of peft, or with `merge` a whole model.
    dtype: float32, bfloat16 or float16, to which the weights are rounded; licence: see `card.model_card`.
    Raises OutputError, UsageError.
    """
    opened = run.open_model(model, which=which)
    if merge and not opened.adapter:
        raise UsageError(f"{model} was not trained with adapters, so nothing is to be merged: leave --merge out.")
    opened = dataclasses.replace(opened, adapter=None if merge else opened.adapter)
    if opened.adapter:
        base = _base_for_others(opened)
    with atomic_files.whole_directory(Path(out)) as place:
        shape = opened.config.to_json() | {"dtype": dtype, "torch_dtype": dtype}  # the names in transformers 5 and 4
        if opened.tokenizer:
            if isinstance(opened.tokenizer, EncoderTokenizer):
                huggingface_files.write_encoders(place, opened.tokenizer, config=shape)
            else:
                huggingface_files.write(place, opened.tokenizer, config=shape)
        if isinstance(opened.config, ModelConfig) and not opened.config.classes:
            generation = {
                "decoder_start_token_id": opened.config.decoder_start_token_id,
                "eos_token_id": opened.config.eos_token_id,
                "pad_token_id": opened.config.pad_token_id,
                "max_new_tokens": answer_length(opened.settings.target_length),
            }
            _write_json(place / "generation_config.json", generation)
        for number, made in enumerate(opened.manifests):
            atomic_files.write_whole(place / f"manifest-{number}.json", made.dumps().encode())
        atomic_files.write_whole(place / "README.md", _card(opened, out, licence))
        if opened.adapter:
            adapters.write(place, opened.adapter, base=base, dtype=dtype)
        else:
            _write_json(place / "config.json", shape)
            save_weights(place, opened.config, opened.weights, dtype=dtype)
    return opened.name


def export_saved_model(
    model: str, *, out: str, which: str = "best", beams: int = 1, rows: int = ROWS, text: bool = False
) -> str:
    """Write a TensorFlow SavedModel from ids to ids: `input_ids` int32[any, input_length] → `output_ids`.

    It generates `rows` of them in one batch. The model itself masks padding (0). With `text`, `serving_default` takes
    whole inputs, `input` string[any], and gives `prediction` beside `output_ids`; the signature `ids` takes ids. A
    program that loads it imports tensorflow_text first. Raises OutputError, UsageError.
    """
    opened = run.open_model(model, which=which)
    config = opened.config
    if not isinstance(config, ModelConfig) or config.classes:
        raise UsageError(f"{model} tells classes apart, and a SavedModel writes texts: export it with --format hf")
    inputs, length = opened.settings.input_length, answer_length(opened.settings.target_length)
    module = tf.Module()
    module.weights = create_variables(opened.weights)

    def group(ids: tf.Tensor) -> tf.Tensor:
        ids = tf.ensure_shape(ids, [rows, inputs])
        mask = tf.cast(ids != config.pad_token_id, tf.int32)
        return generate(module.weights, config, ids, mask, max_length=length, beams=beams)

    def serve(input_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        given = tf.shape(input_ids)[0]
        missing = -given % rows  # rows of padding fill up the last batch; their answers are dropped
        filled = tf.pad(input_ids, [[0, missing], [0, 0]], constant_values=config.pad_token_id)
        groups = tf.map_fn(group, tf.reshape(filled, [-1, rows, inputs]))
        return {"output_ids": tf.reshape(groups, [-1, length])[:given]}

    signature = [tf.TensorSpec([None, inputs], tf.int32, name="input_ids")]
    serving = {"serving_default": tf.function(serve, input_signature=signature)}
    if text:
        if not opened.tokenizer:
            raise UsageError(f"--text: {model} has no tokenizer in it.")
        texts = module.texts = TextSignature(opened.tokenizer, opened.settings)

        def serve_texts(input: tf.Tensor) -> dict[str, tf.Tensor]:
            answers = serve(texts.encode(input))
            return {"prediction": texts.decode(answers["output_ids"]), **answers}

        of_texts = tf.function(serve_texts, input_signature=[tf.TensorSpec([None], tf.string, name="input")])
        serving = {"serving_default": of_texts, "ids": serving["serving_default"]}
    with atomic_files.whole_directory(Path(out)) as place:
        tf.saved_model.save(module, str(place), signatures=serving)
        if opened.tokenizer:
            atomic_files.write_whole(place / "assets" / huggingface_files.MODEL_NAME, opened.tokenizer.model)
    return opened.name


def _base_for_others(opened: run.Model) -> str:
    """Return the name under which others find the model that adapters belong to. Raises UsageError."""
    settings = opened.state.config if opened.state else {}
    base = opened.adapter.base if opened.adapter else ""
    alone = "random weights, which nobody else has" if settings.get("weights") == "random" else ""
    if run.is_run(base):
        alone = f"the run {base}, which only t5prep reads"
    if alone:
        raise UsageError(f"The adapters of {opened.name} belong to {alone}: export a whole model with --merge.")
    return str(Path(base).absolute()) if Path(base).exists() else card_header.base_model(opened) or base


def _card(opened: run.Model, out: str, licence: str) -> bytes:
    return card.model_card(opened, name=Path(out).absolute().name, licence=licence).encode()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    atomic_files.write_whole(path, (json.dumps(value, indent=2) + "\n").encode())
