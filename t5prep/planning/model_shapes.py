"""Define the shapes of published models, so that planning needs neither their weights nor a network.

The numbers are from each checkpoint's `config.json` on the Hugging Face Hub:

* T5: google-t5, google/t5-v1_1-*, flan-t5-*, mt5-*, byt5-*. T5X's configurations (t5x/examples/t5) have equal numbers.
* Encoders: google-bert, distilbert, FacebookAI, albert, google/electra-*, answerdotai/ModernBERT-*,
  jhu-clsp/ettin-encoder-*, jhu-clsp/mmBERT-*, microsoft/deberta-v3-*, EuroBERT/*.
* google/t5gemma-*. The numbers of 2B and 9B are from Gemma 2's table (arXiv:2408.00118).
"""

import dataclasses
import re
from pathlib import Path

from t5prep.errors import UsageError, did_you_mean
from t5prep.io import model_files
from t5prep.training.model.architecture import Config, EncoderConfig, ModelConfig, read_config
from t5prep.training.model.deberta import DebertaConfig
from t5prep.training.model.eurobert import EuroBertConfig
from t5prep.training.model.modernbert import ModernBertConfig
from t5prep.training.model.t5gemma import T5GemmaConfig
from t5prep.training.settings.train_config import TINY_MODEL

# d_model, d_ff, layers, heads
_BASE, _LARGE = (768, 3072, 12, 12), (1024, 4096, 24, 16)
_BERT = EncoderConfig()
_ROBERTA = EncoderConfig(
    model_type="roberta", vocab_size=50265, max_positions=514, segments=1, pad_token_id=1, layer_norm_epsilon=1e-5
)
_ALBERT = EncoderConfig(model_type="albert", vocab_size=30000, embedding_size=128, activation="gelu_new")
_DISTILBERT = EncoderConfig(model_type="distilbert", segments=0)
_ELECTRA = EncoderConfig(model_type="electra")


def _shaped(like: EncoderConfig, sizes: tuple[int, int, int, int]) -> EncoderConfig:
    """Return the encoder `like` with sizes (d_model, d_ff, layers, heads)."""
    width, hidden, layers, heads = sizes
    return dataclasses.replace(like, d_model=width, d_ff=hidden, num_layers=layers, num_heads=heads)


_ETTIN = ModernBertConfig(max_positions=7999, local_theta=160_000.0)
_MMBERT = ModernBertConfig(vocab_size=256000, local_theta=160_000.0, pad_token_id=0)
_ETTINS = {
    "17m": (256, 384, 7, 4),
    "32m": (384, 576, 10, 6),
    "68m": (512, 768, 19, 8),
    "150m": (768, 1152, 22, 12),
    "400m": (1024, 2624, 28, 16),
    "1b": (1792, 3840, 28, 28),
}
CASED = 28996  # vocabulary size of the cased models
ENCODERS = {
    "bert-base-uncased": _shaped(_BERT, _BASE),
    "bert-base-cased": dataclasses.replace(_shaped(_BERT, _BASE), vocab_size=CASED),
    "bert-large-uncased": _shaped(_BERT, _LARGE),
    "bert-large-cased": dataclasses.replace(_shaped(_BERT, _LARGE), vocab_size=CASED),
    "distilbert-base-uncased": _shaped(_DISTILBERT, (768, 3072, 6, 12)),
    "distilbert-base-cased": dataclasses.replace(_shaped(_DISTILBERT, (768, 3072, 6, 12)), vocab_size=CASED),
    "roberta-base": _shaped(_ROBERTA, _BASE),
    "roberta-large": _shaped(_ROBERTA, _LARGE),
    "albert-base-v2": _shaped(_ALBERT, _BASE),
    "albert-large-v2": _shaped(_ALBERT, _LARGE),
    "electra-small-discriminator": dataclasses.replace(_shaped(_ELECTRA, (256, 1024, 12, 4)), embedding_size=128),
    "electra-base-discriminator": _shaped(_ELECTRA, _BASE),
    "electra-large-discriminator": _shaped(_ELECTRA, _LARGE),
    **{
        f"modernbert-{size}": _shaped(ModernBertConfig(), sizes)
        for size, sizes in (("base", (768, 1152, 22, 12)), ("large", (1024, 2624, 28, 16)))
    },
    **{f"ettin-encoder-{size}": _shaped(_ETTIN, sizes) for size, sizes in _ETTINS.items()},
    **{
        f"mmbert-{size}": _shaped(_MMBERT, sizes)
        for size, sizes in (("small", (384, 1152, 22, 6)), ("base", (768, 1152, 22, 12)))
    },
    **{
        f"deberta-v3-{size}": _shaped(DebertaConfig(), sizes)
        for size, sizes in (("small", (768, 3072, 6, 12)), ("base", _BASE), ("large", _LARGE))
    },
    "mdeberta-v3-base": _shaped(DebertaConfig(vocab_size=251000), _BASE),
    **{
        f"eurobert-{size}": _shaped(EuroBertConfig(key_heads=keys), sizes)
        for size, sizes, keys in (
            ("210m", _BASE, 12),
            ("610m", (1152, 4096, 26, 18), 6),
            ("2.1b", (2304, 6144, 32, 18), 6),
        )
    },
}


# d_model, d_ff, encoder layers, decoder layers, heads, d_kv
_T5 = {
    "small": (512, 2048, 6, 6, 8, 64),
    "base": (768, 3072, 12, 12, 12, 64),
    "large": (1024, 4096, 24, 24, 16, 64),
    "3b": (1024, 16384, 24, 24, 32, 128),
    "11b": (1024, 65536, 24, 24, 128, 128),
}
_V1_1 = {
    "small": (512, 1024, 8, 8, 6, 64),
    "base": (768, 2048, 12, 12, 12, 64),
    "large": (1024, 2816, 24, 24, 16, 64),
    "xl": (2048, 5120, 24, 24, 32, 64),
    "xxl": (4096, 10240, 24, 24, 64, 64),
}
_BYT5 = {
    "small": (1472, 3584, 12, 4, 6, 64),
    "base": (1536, 3968, 18, 6, 12, 64),
    "large": (1536, 3840, 36, 12, 16, 64),
    "xl": (2560, 6720, 36, 12, 32, 64),
    "xxl": (4672, 12352, 36, 12, 64, 64),
}


def _models() -> dict[str, ModelConfig]:
    """Return the shapes of all T5, T5 1.1, FLAN-T5, mT5 and ByT5 models, by name."""
    gated = ModelConfig(feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False)
    families = (
        ("t5-", _T5, ModelConfig()),
        ("t5-v1_1-", _V1_1, gated),
        ("flan-t5-", _V1_1, gated),
        ("mt5-", _V1_1, dataclasses.replace(gated, vocab_size=250112, model_type="mt5")),
        ("byt5-", _BYT5, dataclasses.replace(gated, vocab_size=384)),
    )

    def shaped(like: ModelConfig, sizes: tuple[int, int, int, int, int, int]) -> ModelConfig:
        """Return the T5 `like` with these sizes."""
        width, hidden, layers, decoder_layers, heads, key_width = sizes
        return dataclasses.replace(
            like,
            d_model=width,
            d_ff=hidden,
            num_layers=layers,
            num_decoder_layers=decoder_layers,
            num_heads=heads,
            d_kv=key_width,
        )

    return {prefix + size: shaped(like, numbers) for prefix, sizes, like in families for size, numbers in sizes.items()}


# d_model, d_ff, layers, heads, heads of keys, d_kv of each stack
_GEMMA = {
    "b": (768, 2048, 12, 12, 12, 64),
    "2b": (2304, 9216, 26, 8, 4, 256),
    "9b": (3584, 14336, 42, 16, 8, 256),
}


def _t5gemma(encoder: str, decoder: str) -> T5GemmaConfig:
    """Return the shape of google/t5gemma-ENCODER-DECODER. It is equal for all kinds of training (-ul2, -prefixlm, -it)."""
    (width, hidden, layers, heads, of_keys, d_kv), (own_width, own_hidden, own_layers, own_heads, own_of_keys, _) = (
        _GEMMA[size] for size in (encoder, decoder)
    )
    return T5GemmaConfig(
        vocab_size=256_000,
        d_model=width,
        d_ff=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=of_keys,
        d_kv=d_kv,
        decoder_d_model=own_width,
        decoder_d_ff=own_hidden,
        num_decoder_layers=own_layers,
        decoder_num_heads=own_heads,
        decoder_num_kv_heads=own_of_keys,
        full_every=2,
        window=4096,
        full_theta=10_000.0,
        full_factor=1.0,
        query_scalar=d_kv,
        score_cap=50.0,
        logit_cap=30.0,
        model_type="t5gemma",
    )


T5GEMMAS = {
    "t5gemma-2-270m-270m": T5GemmaConfig(),
    **{
        f"t5gemma-{encoder_size}-{decoder_size}": _t5gemma(encoder_size, decoder_size)
        for encoder_size, decoder_size in (("b", "b"), ("2b", "2b"), ("9b", "2b"), ("9b", "9b"))
    },
}
MODELS: dict[str, Config] = {**_models(), **T5GEMMAS, **ENCODERS}


def shape_of(model: str, *, classes: bool = False) -> Config:
    """Return the shape of a model.

    `model` is a published model's name, with or without its owner, or a directory with a `config.json`. For another model
    on the Hub, its `config.json` is fetched. "tiny" is the small model of the recipe `tiny`: an encoder if the data has
    `classes`, else a T5.

    >>> shape_of("google/mt5-small").vocab_size, shape_of("t5-large").num_layers
    (250112, 24)

    Raises UsageError for any other name, and suggests the most similar known model.
    """
    path = Path(model)
    file = path if path.suffix == ".json" else path / "config.json"
    if file.is_file():
        return read_config(file.read_bytes(), location=file)
    name = re.sub("-(ul2|prefixlm)(-it)?$", "", model.rsplit("/", 1)[-1].lower())  # a T5Gemma's kind of training
    if name in MODELS:
        return MODELS[name]
    if name == TINY_MODEL:
        from t5prep.training.run.run import TINY, TINY_ENCODER

        return TINY_ENCODER if classes else TINY
    if model.count("/") == 1 and (hub_shape := _on_the_hub(model)):
        return hub_shape
    raise UsageError(
        f'"{model}" is not a published model that plan knows, a directory with config.json, or a '
        f"model on the Hub.{did_you_mean(name, MODELS)} Name a directory, a model on the Hub, or one "
        f"of: {', '.join(MODELS)}.",
        code="model.not-found",
    )


def _on_the_hub(model: str) -> Config | None:
    """Return the shape of the Hub model OWNER/NAME; None if it is missing, or if the Hub cannot be reached."""
    try:
        files = model_files.find(model)
    except UsageError:
        return None
    return read_config(files.read("config.json"), location=f"{model}/config.json")
