"""Make the model card of an exported model in Markdown, with the Hub's YAML header: model, data, and scores."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from t5prep.dataset.dataset_card import code, literal
from t5prep.dataset.manifest import Manifest
from t5prep.training.evaluate.metrics import TOKEN_NUMBERS
from t5prep.training.model.architecture import CLASS_NAMES, T5_TYPES, EncoderConfig
from t5prep.training.objectives import NUMBERS
from t5prep.training.predict import prediction_inputs
from t5prep.training.run.run import Model

_CARD_SETTINGS = (
    *("model", "lora", "lora_alpha", "batch", "steps", "epochs", "optimizer", "learning_rate", "schedule", "warmup"),
    *("weight_decay", "clip_norm", "dropout", "label_smoothing", "z_loss", "buckets", "seed", "dtype"),
)
# Settings for which 0 means "not used", so that the card leaves them out.
_UNSET_AT_ZERO = ("lora", "lora_alpha", "steps", "epochs", "weight_decay", "clip_norm", "label_smoothing")

UNTIED = """

`transformers` 5 warns that `shared.weight` and `lm_head.weight` differ. They should, as in every T5 1.1: it loads both."""


_LOADED = """from transformers import AutoModelFor{0}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_MODEL")
model = AutoModelFor{0}.from_pretrained("THIS_MODEL")"""


def model_card(model: Model, *, name: str, licence: str = "") -> str:
    """Return the README.md of an exported model: lineage from the manifests, metrics and settings from the checkpoint.

    `licence` is the Hub's name of the model's licence; "" for the base model's licence, if that is known.
    """
    parts = [header(model, name=name, licence=licence), f"# {name}", _describe_model(model)]
    parts += (
        ["## How to ask it", *(_describe_inputs(model, dataset) for dataset in model.manifests)]
        if model.manifests
        else []
    )
    parts += ["## Data", *map(_lineage, model.manifests)] if model.manifests else []
    if model.state:
        metrics, split = _metrics(model), model.state.config.get("eval_split", "validation")
        parts += ["## Metrics", _table(f"{split}, step {model.state.step}", metrics)] if metrics else []
        chosen = {key: model.state.config[key] for key in _CARD_SETTINGS if key in model.state.config}
        settings = {
            key: " ".join(map(str, value)) if isinstance(value, list | tuple) else value
            for key, value in chosen.items()
            if value not in (None, "", [], ()) and not (value == 0 and key in _UNSET_AT_ZERO)
        }
        if "lora" not in settings:
            settings.pop("lora_alpha", None)
        parts += ["## Training", _table("setting", settings)]
        versions = ", ".join(f"{name} {number}" for name, number in model.state.versions.items())
        parts.append(f"With {versions}.")
    return "\n\n".join(parts) + "\n"


def _describe_model(model: Model) -> str:
    if model.adapter:
        return _adapter(model)
    base = model.state.config.get("model") if model.state else None
    weights = "random weights" if model.state and model.state.config.get("weights") == "random" else code(str(base))
    origin = f", trained by t5prep from {weights}" if model.state else ""
    if isinstance(model.config, EncoderConfig) and model.config.masked:
        return f"""A {CLASS_NAMES[model.config.model_type]} that fills masks ({model.config.num_layers} layers){origin}.

```python
from transformers import pipeline

fill = pipeline("fill-mask", "THIS_MODEL")
print(fill(f"a text with a {{fill.tokenizer.mask_token}}"))
```"""
    if isinstance(model.config, EncoderConfig) or model.config.objective.target.is_aligned:
        name, classes = (
            CLASS_NAMES.get(model.config.model_type, "T5's encoder"),
            ", ".join(map(code, model.config.classes)),
        )
        objective = model.config.objective
        return f"""A {name} with a {objective.title} head ({model.config.num_layers} layers; classes {classes}){origin}.

```python
{_LOADED.format(objective.head)}
```"""
    if model.config.classes:
        classes = ", ".join(map(code, model.config.classes))
        return f"""T5's encoder with a classification head ({model.config.num_layers} layers; classes {classes}){origin}.

```python
import torch
{_LOADED.format("TokenClassification")}
texts = tokenizer(["a text"], return_tensors="pt", padding=True)
tokens = texts.attention_mask.unsqueeze(-1)
with torch.no_grad():
    logits = (model(**texts).logits * tokens).sum(dim=1) / tokens.sum(dim=1)  # the mean over a text's tokens
```"""
    layers = f"{model.config.num_layers} + {model.config.num_decoder_layers} layers"
    return f"""A {model.config.title} of {layers}{origin}.

```python
{_LOADED.format("Seq2SeqLM")}
```{"" if model.config.tie_word_embeddings else UNTIED}"""


def _adapter(model: Model) -> str:
    """Return the sentence about the adapters of a model that writes texts, and code that loads them with peft."""
    adapter = model.adapter
    assert adapter is not None
    base = base_model(model) or adapter.base
    return f"""Adapters (LoRA of rank {adapter.config.lora_rank}) of {code(base)}, a model that writes texts, trained by t5prep.

```python
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_MODEL")
model = PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained({json.dumps(base)}), "THIS_MODEL")
```"""


def _describe_inputs(model: Model, dataset: Manifest) -> str:
    """Return the section on inputs of a dataset: its template, its filters, and the command that makes such inputs."""
    chosen, prompt = dataset.settings, prediction_inputs.prompt_of(model, dataset)
    sentences = [
        f"An input of the task {code(chosen.task)} is {code(prompt)}: the names in braces are columns."
        if prompt
        else f"Inputs are those of the task {code(chosen.task)}."
    ]
    sentences.append(f"It has at most {chosen.input_length:,} tokens.")
    if label_map := chosen.options.get("label_map"):
        sentences.append(f"Labels are written as {code(str(label_map))}.")
    if chosen.filter:
        filters = " ".join(f"--filter {shlex.quote(text)}" for text in chosen.filter)
        sentences.append(
            f"Training texts passed {code(filters)}, so a text that these filters would change is changed first."
        )
    summary = " ".join(sentences)
    return f"""{summary} `t5prep predict` makes such inputs of a table with the same columns:

```sh
t5prep predict rows.csv --model THIS_MODEL
```"""


def _lineage(dataset: Manifest) -> str:
    chosen = dataset.settings
    records = {name: split.records for name, split in dataset.splits.items()}
    facts: dict[str, object] = {
        "task": chosen.task,
        "source": dataset.source.uri,
        "revision": dataset.source.revision,
        "licence": dataset.source.licence or "not stated",
        "citation": dataset.source.citation or "not stated",
        "records": ", ".join(f"{name} {number:,}" for name, number in records.items()),
        "tokens": f"inputs {chosen.input_length}, targets {chosen.target_length}; truncation {chosen.truncation}",
        "tokenizer": f"SHA-256 {dataset.tokenizer.sha256}",
        "manifest digest": dataset.digest,
    }
    return _table("dataset", facts)


def _table(first: str, facts: Mapping[str, object]) -> str:
    lines = [f"| {first} | |", "|---|---|"]
    for name, value in facts.items():
        cell = f"{value:.4f}" if isinstance(value, float) and 1e-3 <= abs(value) < 1e6 else str(value)
        if name.endswith("records") and isinstance(value, float):  # a count, also one of a mixture's: DATASET/records
            cell = f"{int(value):,}"
        lines.append(f"| {literal(name)} | {literal(cell)} |")
    return "\n".join(lines)


# Names of the first T5 models, which the Hub also knows without their owner.
OWNERLESS_NAME = re.compile(r"t5-(small|base|large|3b|11b)")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
# The licence of each publisher's T5 models, from their cards. For other models the user names the licence.
LICENCES = {"google-t5": "apache-2.0", "google": "apache-2.0"}
TASK, CLASS_TASK = "text2text-generation", "text-classification"


def header(model: Model, *, name: str, licence: str = "") -> str:
    """Return the YAML header between two lines of dashes. `licence` is the Hub's name of a licence, such as apache-2.0."""
    base, kind = base_model(model), model.config.model_type
    numbers = _numbers(model)
    tasks = sorted({dataset.settings.task for dataset in model.manifests})
    data = ModelCardData(
        library_name="peft" if model.adapter else "transformers",
        pipeline_tag=_task(model),
        base_model=base or None,
        license=licence or LICENCES.get(base.partition("/")[0]),
        datasets=datasets(model) or None,
        metrics=sorted({NUMBERS[key].hub for key in numbers}) or None,
        tags=["t5" if kind in T5_TYPES else kind, "t5prep", *(["lora"] if model.adapter else []), *tasks],
        model_name=name if numbers and tasks else None,
        eval_results=_results(model, numbers) if numbers and tasks else None,
        ignore_metadata_errors=False,
    )
    return f"---\n{data.to_yaml()}\n---"


def _task(model: Model) -> str:
    """Return the Hub's name of the model's job."""
    return model.config.objective.hub_task


def base_model(model: Model) -> str:
    """Return the Hub's name of the model whose weights training began with; "" for random weights or a local model."""
    settings = model.state.config if model.state else {}
    name = str(settings.get("model", ""))
    if settings.get("weights") == "random" or Path(name).exists():
        return ""
    if OWNERLESS_NAME.fullmatch(name):
        return f"google-t5/{name}"
    return name if REPOSITORY.fullmatch(name) else ""


def datasets(model: Model) -> list[str]:
    """Return the Hub's names of the datasets that the model was trained on, without datasets from elsewhere."""
    matches = (re.match(r"hf:([\w.-]+/[\w.-]+)", dataset.source.uri) for dataset in model.manifests)
    return sorted({match[1] for match in matches if match})


def _metrics(model: Model) -> dict[str, float]:
    """Return the numbers of the checkpoint's evaluation; the number that chose the checkpoint comes first.

    For a model with classes, perplexity and token accuracy are left out, because they are no scores of classes.
    """
    if model.state is None:
        return {}
    unfit = TOKEN_NUMBERS.keys() - {"loss"} if model.config.classes else set()
    chose = model.state.metric
    ordered = sorted(model.state.metrics.items(), key=lambda item: item[0] != chose)
    return {
        name: value
        for name, value in ordered
        if isinstance(value, int | float) and name.rpartition("/")[2] not in unfit  # of a mixture: DATASET/NUMBER
    }


def _numbers(model: Model) -> dict[str, float]:
    """Return the numbers of `_metrics` for which the Hub has a metric."""
    reported = {name for name, number in NUMBERS.items() if number.hub}
    return {name: float(value) for name, value in _metrics(model).items() if name in reported}


def _results(model: Model, numbers: Mapping[str, float]) -> list[EvalResult]:
    """Return each of `numbers` as the Hub's EvalResult, with its data; for a mixture, with the first dataset's name."""
    dataset = model.manifests[0]
    split = str(model.state.config.get("eval_split", "validation")) if model.state else "validation"
    return [
        EvalResult(
            task_type=CLASS_TASK if model.config.classes else TASK,
            dataset_type=(datasets(model) or [dataset.settings.task])[0],
            dataset_name=dataset.settings.task,
            dataset_split=split,
            metric_type=NUMBERS[key].hub,
            metric_name=key,
            metric_value=value,
        )
        for key, value in numbers.items()
    ]
