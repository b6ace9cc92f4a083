"""Write the model card in Markdown, with the Hub's header: the model, the data it was trained on, and its scores."""

from typing import Any

from t5prep.dataset.manifest import Manifest
from t5prep.train import card_header
from t5prep.train.model.encoder_config import CLASS_NAMES, EncoderConfig
from t5prep.train.run import Model

_TOLD = [
    "model",
    "lora",
    "lora_alpha",
    "batch",
    "steps",
    "epochs",
    "optimizer",
    "learning_rate",
    "schedule",
    "warmup",
    "dropout",
    "seed",
    "dtype",
]

UNTIED = """

`transformers` 5 warns that `shared.weight` and `lm_head.weight` differ. They should, as in every T5 1.1: it loads both."""


def model_card(model: Model, *, name: str, licence: str = "") -> str:
    """Return the README.md of an exported model: lineage from the manifests, metrics and settings from the checkpoint.

    `licence` is the model's, by the Hub's name for it; "" takes the base model's licence where that is known.
    """
    parts = [card_header.header(model, name=name, licence=licence), f"# {name}", _what(model)]
    parts += ["## Data", *map(_lineage, model.manifests)] if model.manifests else []
    if model.state:
        shown = {key: value for key, value in model.state.metrics.items() if isinstance(value, float | int)}
        split = model.state.config.get("eval_split", "validation")
        parts += ["## Metrics", _table(f"{split}, step {model.state.step}", shown)] if shown else []
        settings = {key: model.state.config[key] for key in _TOLD if model.state.config.get(key)}
        if "lora" not in settings:
            settings.pop("lora_alpha", None)
        parts += ["## Training", _table("setting", settings), _versions(model.state.versions)]
    return "\n\n".join(parts) + "\n"


def _what(model: Model) -> str:
    if model.adapter:
        return _adapter(model)
    base = model.state.config.get("model") if model.state else None
    weights = "random weights" if model.state and model.state.config.get("weights") == "random" else f"`{base}`"
    begun = f", trained by t5prep from {weights}" if model.state else ""
    if isinstance(model.config, EncoderConfig):
        name, classes = CLASS_NAMES[model.config.model_type], ", ".join(f"`{one}`" for one in model.config.classes)
        return f"""A {name} with a classification head ({model.config.num_layers} layers; classes {classes}){begun}.

```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_MODEL")
model = AutoModelForSequenceClassification.from_pretrained("THIS_MODEL")
```"""
    if model.config.classes:
        classes = ", ".join(f"`{one}`" for one in model.config.classes)
        return f"""T5's encoder with a classification head ({model.config.num_layers} layers; classes {classes}){begun}.

```python
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_MODEL")
model = AutoModelForTokenClassification.from_pretrained("THIS_MODEL")
texts = tokenizer(["a text"], return_tensors="pt", padding=True)
tokens = texts.attention_mask.unsqueeze(-1)
with torch.no_grad():
    logits = (model(**texts).logits * tokens).sum(dim=1) / tokens.sum(dim=1)  # the mean over a text's tokens
```"""
    return f"""A T5 (`{model.config.feed_forward_proj}`, {model.config.num_layers} + {model.config.num_decoder_layers} layers){begun}.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_MODEL")
model = AutoModelForSeq2SeqLM.from_pretrained("THIS_MODEL")
```{"" if model.config.tie_word_embeddings else UNTIED}"""


def _adapter(model: Model) -> str:
    own = model.adapter
    assert own is not None
    base = card_header.base_model(model) or own.base
    return f"""Adapters (LoRA of rank {own.config.lora_rank}) of `{base}`, a T5, trained by t5prep.

```python
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_MODEL")
model = PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained("{base}"), "THIS_MODEL")
```"""


def _lineage(dataset: Manifest) -> str:
    chosen = dataset.settings
    records = {name: split.records for name, split in dataset.splits.items()}
    rows: dict[str, Any] = {
        "task": chosen.task,
        "source": f"`{dataset.source.uri}`",
        "revision": f"`{dataset.source.revision}`",
        "licence": dataset.source.licence or "not stated",
        "citation": dataset.source.citation or "not stated",
        "records": ", ".join(f"{name} {number:,}" for name, number in records.items()),
        "tokens": f"inputs {chosen.input_length}, targets {chosen.target_length}; truncation {chosen.truncation}",
        "tokenizer": f"SHA-256 `{dataset.tokenizer.sha256}`",
        "manifest digest": f"`{dataset.digest}`",
    }
    return _table("dataset", rows)


def _table(first: str, rows: dict[str, Any]) -> str:
    lines = [f"| {first} | |", "|---|---|"]
    for name, value in rows.items():
        shown = f"{value:.4f}" if isinstance(value, float) and 1e-3 <= abs(value) < 1e6 else str(value)
        lines.append(f"| {name} | {shown.replace('|', '/')} |")
    return "\n".join(lines)


def _versions(versions: dict[str, str]) -> str:
    return "With " + ", ".join(f"{name} {number}" for name, number in versions.items()) + "."
