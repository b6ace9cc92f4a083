"""Export a run for other software: a Hugging Face directory that transformers loads in PyTorch, or a SavedModel.

The best checkpoint is exported unless another is named. The directory appears complete or not at all."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import tensorflow as tf

from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.io import atomic_files
from t5prep.io.installation import python
from t5prep.json_values import JSONObject
from t5prep.options.models import ExportOptions
from t5prep.tasks.filters import chain
from t5prep.tokens import featurizer, huggingface_files
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.beam_search import generate
from t5prep.training.model.weight_layout import of_head
from t5prep.training.model.weights import finite, save_weights
from t5prep.training.predict.predictor import answer_length
from t5prep.training.publish import model_card
from t5prep.training.run import adapters, run

# Rows that a SavedModel generates in one batch; its program needs static shapes.
ROWS = 8
SAVEDMODEL = ExportOptions("savedmodel")


def export(model: str, *, out: str, options: ExportOptions) -> str:
    """Export a run in the format of the options; return the checkpoint's name. Raises OutputError, UsageError."""
    return (export_hf if options.format == "hf" else export_saved_model)(model, out=out, options=options)


def export_hf(model: str, *, out: str, options: ExportOptions = ExportOptions()) -> str:  # noqa: B008 - frozen
    """Write config, safetensors, tokenizer, generation config, model card and manifests; return the checkpoint's name.

    A run with adapters (LoRA) is written as adapters in the layout of peft. It is written as a complete model with `merge`, and if
    it has a head for classes or masks, because the head is trained too. Raises OutputError, UsageError.
    """
    opened, merge, dtype = run.open_model(model, checkpoint=options.checkpoint), options.merge, options.dtype
    if merge and not opened.adapter:
        raise UsageError(
            f"{model} was not trained with adapters, so --merge has nothing to merge. Remove --merge.",
            code="option.inapplicable",
        )
    opened = dataclasses.replace(opened, adapter=None if merge or of_head(opened.config) else opened.adapter)
    if opened.adapter:
        base = _base_for_others(opened)
    with atomic_files.whole_directory(Path(out)) as folder:
        shape = opened.config.to_json() | {"dtype": dtype, "torch_dtype": dtype}  # the names in transformers 5 and 4
        if opened.tokenizer:
            if isinstance(opened.tokenizer, EncoderTokenizer):
                huggingface_files.write_encoders(folder, opened.tokenizer, config=shape)
            else:
                huggingface_files.write(folder, opened.tokenizer, config=shape)
        if isinstance(opened.config, ModelConfig) and not opened.config.classes:
            generation = {
                "decoder_start_token_id": opened.config.decoder_start_token_id,
                "eos_token_id": opened.config.eos_token_id,
                "pad_token_id": opened.config.pad_token_id,
                "max_new_tokens": answer_length(opened.settings.target_length),
            }
            _write_json(folder / "generation_config.json", generation)
        for number, dataset in enumerate(opened.manifests):
            atomic_files.write_whole(folder / f"manifest-{number}.json", dataset.dumps().encode())
        for copy, content in run.copies_of(opened):
            atomic_files.write_whole(folder / copy, content)
        readme = model_card.model_card(opened, name=Path(out).absolute().name, licence=options.license)
        atomic_files.write_whole(folder / "README.md", readme.encode())
        if opened.adapter:
            adapters.write(folder, opened.adapter, base=base, dtype=dtype)
        else:
            _write_json(folder / "config.json", shape)
            save_weights(folder, opened.config, opened.weights, dtype=dtype)
    return opened.name


def export_saved_model(model: str, *, out: str, options: ExportOptions = SAVEDMODEL, rows: int = ROWS) -> str:
    """Write a TensorFlow SavedModel with the signature `input_ids` int32[any, input_length] → `output_ids`.

    It generates `rows` answers in one batch, and masks padding itself. With `options.text`, `serving_default` takes complete
    inputs, `input` string[any], and returns `prediction` besides `output_ids`; the signature `ids` takes ids. A program that loads
    it must then import tensorflow_text first. Return the checkpoint's name. Raises OutputError, UsageError.
    """
    opened = run.open_model(model, checkpoint=options.checkpoint)
    config = opened.config
    if not isinstance(config, ModelConfig) or config.classes:
        raise UsageError(
            f"{model} does not generate text, but a SavedModel does. Export the model with --format hf.",
            code="option.inapplicable",
        )
    inputs, length = opened.settings.input_length, answer_length(opened.settings.target_length)
    module = tf.Module()
    module.weights = {
        name: tf.Variable(finite(opened.weights, name), name=name.replace(".", "_")) for name in opened.weights
    }

    def group(ids: tf.Tensor) -> tf.Tensor:
        ids = tf.ensure_shape(ids, [rows, inputs])
        mask = tf.cast(ids != config.pad_token_id, tf.int32)
        return generate(module.weights, config, ids, mask, max_length=length, beams=options.beams)

    def serve(input_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        row_count = tf.shape(input_ids)[0]
        missing = -row_count % rows  # rows of padding fill up the last batch; their answers are dropped
        filled = tf.pad(input_ids, [[0, missing], [0, 0]], constant_values=config.pad_token_id)
        groups = tf.map_fn(group, tf.reshape(filled, [-1, rows, inputs]))
        return {"output_ids": tf.reshape(groups, [-1, length])[:row_count]}

    signature = [tf.TensorSpec([None, inputs], tf.int32, name="input_ids")]
    serving = {"serving_default": tf.function(serve, input_signature=signature, autograph=False)}
    if options.text:
        if not opened.tokenizer:
            raise UsageError(
                f"--text needs a tokenizer, but {model} contains none. Remove --text.", code="option.inapplicable"
            )
        if changing := next(filter(chain.changes_texts, opened.settings.filter), ""):
            raise UsageError(
                f"--text cannot apply --filter {changing}, which changed the training texts. Remove --text, "
                "and pass the SavedModel ids of filtered texts.",
                code="option.inapplicable",
            )
        texts = module.texts = TextSignature(opened.tokenizer, opened.settings)

        def serve_texts(input: tf.Tensor) -> dict[str, tf.Tensor]:
            answers = serve(texts.encode(input))
            return {"prediction": texts.decode(answers["output_ids"]), **answers}

        signature = [tf.TensorSpec([None], tf.string, name="input")]
        of_texts = tf.function(serve_texts, input_signature=signature, autograph=False)
        serving = {"serving_default": of_texts, "ids": serving["serving_default"]}
    with atomic_files.whole_directory(Path(out)) as folder:
        tf.saved_model.save(module, str(folder), signatures=serving)
        if opened.tokenizer:
            file_name = (
                "tokenizer.json" if isinstance(opened.tokenizer, EncoderTokenizer) else huggingface_files.MODEL_NAME
            )
            atomic_files.write_whole(folder / "assets" / file_name, opened.tokenizer.model)
    return opened.name


def _base_for_others(opened: run.Model) -> str:
    """Return the name or path under which others find the base model of the adapters. Raises UsageError if there is none."""
    settings = opened.state.config if opened.state else {}
    base = opened.adapter.base if opened.adapter else ""
    alone = "random weights, which nobody else has" if settings.get("weights") == "random" else ""
    if run.is_run(base):
        alone = f"the run {base}, which only t5prep reads"
    if alone:
        raise UsageError(
            f"The adapters of {opened.name} depend on {alone}. Export a whole model with --merge.",
            code="weights.private-base",
        )
    return str(Path(base).absolute()) if Path(base).exists() else model_card.base_model(opened) or base


def _write_json(path: Path, value: JSONObject) -> None:
    atomic_files.write_whole(path, (json.dumps(value, indent=2) + "\n").encode())


class TextSignature(tf.Module):
    """Encode and decode texts with SentencePiece of tensorflow_text. The ids are those of `predict --as-text`.

    Inputs are cut like the run's data. Raises UsageError if tensorflow_text is missing, or has no equivalent of the tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, settings: Settings) -> None:
        super().__init__()
        if not _installed():
            release = tf.__version__.rpartition(".")[0]
            command = f'{python()} -m pip install --no-deps "tensorflow-text=={release}.*"'
            raise UsageError(
                "--text needs tensorflow_text, which is not installed. Install it without its second "
                f"TensorFlow: {command}",
                code="install.extra-missing",
            )
        if isinstance(tokenizer, EncoderTokenizer):
            raise UsageError(
                f"--text does not support {tokenizer.name}, because tensorflow_text cannot run a "
                "tokenizer.json. Remove --text.",
                code="option.inapplicable",
            )
        if tokenizer.is_bytes:
            raise UsageError(
                f"--text does not support {tokenizer.name}, because tensorflow_text has no model with a token "
                "for each byte. Remove --text.",
                code="option.inapplicable",
            )
        if settings.keep_newlines:
            raise UsageError(
                "--text does not support the newline tokens of this run, because SentencePiece alone cannot "
                "produce them. Remove --text.",
                code="option.inapplicable",
            )
        import tensorflow_text

        self._pieces = tensorflow_text.SentencepieceTokenizer(model=tokenizer.model)
        self._eos, self._pad, self._known = tokenizer.eos_id, tokenizer.pad_id, tokenizer.vocab_size
        self._controls = tf.constant(tokenizer.controls, tf.int32)
        self._length = settings.input_length
        self._marker = tokenizer.sentinel(1) if settings.marker != "none" else None
        self._policy = settings.truncation

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        """Return the ids of `texts`, string[rows], with EOS, cut and padded: int32[rows, input_length]."""
        ids = self._pieces.tokenize(texts)
        is_control = tf.reduce_any(ids.flat_values[:, None] == self._controls[None, :], axis=1)
        ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(~is_control))  # text never becomes a control token
        ids = tf.concat([ids, tf.fill([ids.nrows(), 1], self._eos)], axis=1)
        lengths = tf.cast(ids.row_lengths(), tf.int32)[:, None]
        padded_ids, places = ids.to_tensor(self._pad), tf.range(self._length)[None, :]
        marked = self._marker is not None and self._policy == "head_tail"
        head, _ = featurizer.ends(self._length, policy=self._policy, marked=marked)
        is_cut = lengths > self._length
        sources = tf.where(is_cut & (places >= head), lengths - self._length + places, places)
        fitted = tf.gather(padded_ids, tf.clip_by_value(sources, 0, tf.shape(padded_ids)[1] - 1), batch_dims=1)
        fitted = tf.where(places < lengths, fitted, self._pad)
        return tf.where(is_cut & (places == head), self._marker, fitted) if marked else fitted

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the texts of generated ids, int32[rows, length], without control tokens: string[rows]."""
        plain = (ids != self._eos) & (ids != self._pad) & (ids < self._known)
        plain &= tf.reduce_all(ids[..., None] != self._controls, axis=-1)
        return self._pieces.detokenize(tf.ragged.boolean_mask(ids, plain))


def _installed() -> bool:
    """Check whether tensorflow_text can be imported, without importing it."""
    try:
        return importlib.util.find_spec("tensorflow_text") is not None
    except ValueError:  # a module that was imported without a spec
        return False
