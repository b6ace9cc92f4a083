"""Turn texts into ids and ids into texts inside a TensorFlow program, for a SavedModel that takes texts."""

import importlib.util

import tensorflow as tf

from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.io.installation import install_command
from t5prep.tokens import truncation
from t5prep.tokens.tokenizer import Tokenizer


class TextSignature(tf.Module):
    """Encode and decode texts with the SentencePiece of tensorflow_text: the ids are those of `predict --as-text`.

    Inputs are cut as the run's data was. Raises UsageError where tensorflow_text is missing, or where it has no
    equivalent of the tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, settings: Settings) -> None:
        super().__init__()
        if not _installed():
            raise UsageError(f"--text needs tensorflow_text: {install_command('train', 'text')}")
        if tokenizer.is_bytes:
            raise UsageError(
                f"--text: {tokenizer.name} has a token for each byte, and tensorflow_text has no such model."
            )
        if settings.keep_newlines:
            raise UsageError(
                "--text: this run keeps newlines as tokens, which SentencePiece alone does not: leave it out."
            )
        import tensorflow_text

        self._pieces = tensorflow_text.SentencepieceTokenizer(model=tokenizer.model)
        self._eos, self._pad, self._known = tokenizer.eos_id, tokenizer.pad_id, tokenizer.vocab_size
        self._controls = tf.constant(tokenizer.controls, tf.int32)
        self._length = settings.input_length
        self._marker = tokenizer.sentinel(1) if settings.marker != "none" else None
        self._policy = settings.truncation

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        """Return the ids of texts, string[rows], with EOS, cut and padded: int32[rows, input_length]."""
        ids = self._pieces.tokenize(texts)
        spelled = tf.reduce_any(ids.flat_values[:, None] == self._controls[None, :], axis=1)
        ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(~spelled))  # text never becomes a control token
        ids = tf.concat([ids, tf.fill([ids.nrows(), 1], self._eos)], axis=1)
        lengths = tf.cast(ids.row_lengths(), tf.int32)[:, None]
        whole, places = ids.to_tensor(self._pad), tf.range(self._length)[None, :]
        marked = self._marker is not None and self._policy == "head_tail"
        head, _ = truncation.ends(self._length, policy=self._policy, marked=marked)
        is_cut = lengths > self._length
        sources = tf.where(is_cut & (places >= head), lengths - self._length + places, places)
        fitted = tf.gather(whole, tf.clip_by_value(sources, 0, tf.shape(whole)[1] - 1), batch_dims=1)
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
