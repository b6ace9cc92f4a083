"""What PyTorch's encoders make of small models: the reference that tests/training/test_encoders.py compares with.

    python tests/torch_encoders.py OUT

For each type OUT gets a directory in Hugging Face layout, `bin/` with the same weights as a `pytorch_model.bin`, `bare/`
with the pretrained model alone, and `reference.npz`: a batch, its logits, the gradients of its loss, and the losses of ten
steps of AdamW. A ModernBERT also gets `published/`, its weights as those of a masked-language model, and the logits of
longer texts.
A program of its own, because transformers' models and TensorFlow in one process register LLVM's options twice and die.
"""

import sys
from pathlib import Path

import numpy as np
from torch_steps import train

_COMMON = {
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "vocab_size": 99,
    "hidden_size": 32,
    "num_labels": 3,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
_ROBERTA = {
    "max_position_embeddings": 42,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    **_COMMON,
    **_NO_DROPOUT,
}
# Name → config: the real models' switches, in a small size.
TYPES = {
    "bert": {"model_type": "bert", "max_position_embeddings": 40, **_COMMON, **_NO_DROPOUT},
    "distilbert": {
        "model_type": "distilbert",
        "vocab_size": 99,
        "n_layers": 3,
        "n_heads": 4,
        "dim": 32,
        "hidden_dim": 37,
        "max_position_embeddings": 40,
        "num_labels": 3,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "seq_classif_dropout": 0.0,
    },
    "roberta": {"model_type": "roberta", **_ROBERTA},
    # FacebookAI/xlm-roberta-base and almanach/camembert-base are RoBERTas by their config.json, but for the type.
    "xlm-roberta": {"model_type": "xlm-roberta", **_ROBERTA},
    "camembert": {"model_type": "camembert", **_ROBERTA},
    "albert": {
        "model_type": "albert",
        "max_position_embeddings": 40,
        "embedding_size": 16,
        "hidden_act": "gelu_new",
        "classifier_dropout_prob": 0.0,
        **_COMMON,
        **_NO_DROPOUT,
    },
    # google/electra-base-discriminator has embeddings as wide as its layers, electra-small has not.
    "electra": {"model_type": "electra", "max_position_embeddings": 40, "embedding_size": 32, **_COMMON, **_NO_DROPOUT},
    "electra_small": {
        "model_type": "electra",
        "max_position_embeddings": 40,
        "embedding_size": 16,
        **_COMMON,
        **_NO_DROPOUT,
    },
}

# The windows are as short beside the texts as those of the published models beside theirs.
MODERNBERTS = {
    # answerdotai/ModernBERT-base, by the entries of its own config.json, which transformers 5 writes otherwise.
    "modernbert": {
        "model_type": "modernbert",
        "max_position_embeddings": 200,
        "local_attention": 8,
        "global_attn_every_n_layers": 3,
        "classifier_pooling": "mean",
        "pad_token_id": 3,
        "eos_token_id": 2,
        "sep_token_id": 2,
        "bos_token_id": 1,
        "cls_token_id": 1,
        **_COMMON,
        "num_hidden_layers": 5,
    },
    # jhu-clsp/mmBERT-base's angles, with the pooling and the order of layers of neither.
    "mmbert": {
        "model_type": "modernbert",
        "max_position_embeddings": 200,
        "local_attention": 6,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 160000.0,
        "global_attn_every_n_layers": 2,
        "classifier_pooling": "cls",
        "hidden_activation": "silu",
        "pad_token_id": 0,
        "eos_token_id": 1,
        "sep_token_id": 1,
        "bos_token_id": 2,
        "cls_token_id": 1,
        **_COMMON,
    },
}
# microsoft/deberta-v3-base's entries; half of the buckets are of one distance each, and texts are longer than all of them.
DEBERTA = {
    "model_type": "deberta-v2",
    "max_position_embeddings": 40,
    "max_relative_positions": -1,
    "position_buckets": 12,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "relative_attention": True,
    "position_biased_input": False,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "pooler_dropout": 0,
    "pooler_hidden_act": "gelu",
    **_COMMON,
    **{name: rate for name, rate in _NO_DROPOUT.items() if name != "classifier_dropout"},
}
# EuroBERT/EuroBERT-210m, 610m and 2.1B: late pooling; of the two larger ones, fewer heads have keys.
EUROBERT = {
    "model_type": "eurobert",
    "max_position_embeddings": 200,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0},
    "pad_token_id": 3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    **_COMMON,
}
# Those that take longer texts than the others.
LONG = MODERNBERTS | {
    "deberta": DEBERTA,
    "eurobert": EUROBERT,
    "eurobert_mean": {**EUROBERT, "num_key_value_heads": 4, "classifier_pooling": "mean"},
}
TYPES |= LONG

# T5's encoder with the mean of a text's logits by T5ForTokenClassification.
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 3, "num_decoder_layers": 1, "num_heads": 4, "num_labels": 3}
T5_TYPES = {
    "t5_1_1": {"model_type": "t5", "vocab_size": 99, "dropout_rate": 0.0, "feed_forward_proj": "gated-gelu", **_T5},
    "umt5": {"model_type": "umt5", "vocab_size": 99, "dropout_rate": 0.0, **_T5},
}


def draw_batch(pad: int) -> dict[str, np.ndarray]:
    """Ids of texts and of pairs, some with padding; `texts` is 0 for padding, 1 and 2 for the two texts of a pair."""
    rng = np.random.default_rng(0)
    ids, texts = rng.integers(5, 99, (4, 17)), np.ones((4, 17), np.int64)
    texts[1, 8:], texts[2, 4:9] = 2, 2
    texts[0, 12:] = texts[2, 9:] = 0
    return {"ids": np.where(texts > 0, ids, pad), "texts": texts, "labels": np.array([0, 2, 1, 1])}


def draw_long(pad: int) -> dict[str, np.ndarray]:
    """Ids of texts that are longer than a register of a TPU, one with padding."""
    ids, texts = np.random.default_rng(1).integers(5, 99, (2, 150)), np.ones((2, 150), np.int64)
    texts[1, 133:] = 0
    return {"long_ids": np.where(texts > 0, ids, pad), "long_texts": texts}


def _write(name: str, config: dict, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

    torch.manual_seed(0)
    settings = AutoConfig.for_model(**config)
    kind = AutoModelForTokenClassification if name in T5_TYPES else AutoModelForSequenceClassification
    model = kind.from_config(settings, attn_implementation="eager").train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.dim() > 1 else 0.5, std=0.3)
    if name in T5_TYPES:
        model.config.pooling = "mean"
    model.save_pretrained(folder)
    (folder / "bin").mkdir()
    (folder / "bin" / "config.json").write_bytes((folder / "config.json").read_bytes())
    torch.save(model.state_dict(), folder / "bin" / "pytorch_model.bin")
    model.base_model.save_pretrained(folder / "bare")
    batch = draw_batch(settings.pad_token_id)
    if name in MODERNBERTS:
        _published(model, folder)
    if name in LONG:
        batch |= draw_long(settings.pad_token_id)
        with torch.no_grad():
            longer = {"input_ids": torch.tensor(batch["long_ids"]), "attention_mask": torch.tensor(batch["long_texts"])}
            batch["long_logits"] = model(**longer).logits.numpy()
    inputs = {"input_ids": torch.tensor(batch["ids"]), "attention_mask": torch.tensor((batch["texts"] > 0).astype(int))}
    if getattr(settings, "type_vocab_size", 1) > 1:
        inputs["token_type_ids"] = torch.tensor(np.maximum(batch["texts"] - 1, 0))
    tokens = inputs["attention_mask"][..., None]

    def compute() -> torch.Tensor:
        logits = model(**inputs).logits
        return (logits * tokens).sum(dim=1) / tokens.sum(dim=1) if name in T5_TYPES else logits

    logits = compute().detach().numpy()
    trained = train(model, lambda: torch.nn.functional.cross_entropy(compute(), torch.tensor(batch["labels"])))
    np.savez(folder / "reference.npz", logits=logits, **batch, **trained)


def _published(model, folder: Path) -> None:
    """Write the model as ModernBERT-base is published: of a masked-language model, whose output table is the embeddings."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    masked = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(folder))
    masked.load_state_dict({n: value for n, value in model.state_dict().items() if "classifier" not in n}, strict=False)
    masked.save_pretrained(folder / "published")


if __name__ == "__main__":
    for own_name, own_config in {**TYPES, **T5_TYPES}.items():
        _write(own_name, own_config, Path(sys.argv[1]) / own_name)
