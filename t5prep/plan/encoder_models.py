"""List the shapes of published encoders, as `models` does for T5s.

The numbers are from each checkpoint's `config.json` on the Hugging Face Hub (google-bert, distilbert, FacebookAI, albert,
google/electra-*).
"""

from typing import Any

from t5prep.train.model.architecture import EncoderConfig

# d_model, d_ff, layers, heads
_BASE, _LARGE = (768, 3072, 12, 12), (1024, 4096, 24, 16)
_ROBERTA: dict[str, Any] = {
    "model_type": "roberta",
    "vocab_size": 50265,
    "max_positions": 514,
    "segments": 1,
    "pad_token_id": 1,
    "layer_norm_epsilon": 1e-5,
}
_ALBERT: dict[str, Any] = {
    "model_type": "albert",
    "vocab_size": 30000,
    "embedding_size": 128,
    "activation": "gelu_new",
}


def _shaped(sizes: tuple[int, int, int, int], **fields: Any) -> EncoderConfig:
    width, hidden, layers, heads = sizes
    return EncoderConfig(d_model=width, d_ff=hidden, num_layers=layers, num_heads=heads, **fields)


CASED = 28996  # pieces of the cased vocabularies
ENCODERS = {
    "bert-base-uncased": _shaped(_BASE),
    "bert-base-cased": _shaped(_BASE, vocab_size=CASED),
    "bert-large-uncased": _shaped(_LARGE),
    "bert-large-cased": _shaped(_LARGE, vocab_size=CASED),
    "distilbert-base-uncased": _shaped((768, 3072, 6, 12), model_type="distilbert", segments=0),
    "distilbert-base-cased": _shaped((768, 3072, 6, 12), model_type="distilbert", segments=0, vocab_size=CASED),
    "roberta-base": _shaped(_BASE, **_ROBERTA),
    "roberta-large": _shaped(_LARGE, **_ROBERTA),
    "albert-base-v2": _shaped(_BASE, **_ALBERT),
    "albert-large-v2": _shaped(_LARGE, **_ALBERT),
    "electra-small-discriminator": _shaped((256, 1024, 12, 4), model_type="electra", embedding_size=128),
    "electra-base-discriminator": _shaped(_BASE, model_type="electra"),
    "electra-large-discriminator": _shaped(_LARGE, model_type="electra"),
}


def encoder_flops(config: EncoderConfig, *, input_length: int) -> int:
    """Return the FLOPs of the matrix products of one row in one training step: forward, and twice that backward.

    >>> round(encoder_flops(ENCODERS["bert-base-uncased"], input_length=128) * 8 / 1e9)
    536
    """
    d = config.d_model
    each = 4 * d * d + 2 * d * config.d_ff + 2 * input_length * d
    projection = config.embedding_width * d if config.projects else 0
    return 3 * 2 * input_length * (config.num_layers * each + projection)
