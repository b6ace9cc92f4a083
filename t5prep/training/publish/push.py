"""Upload an exported model, or a tokenizer with a config.json, to the Hugging Face Hub with the user's login.

This module needs no TensorFlow.
"""

import json
import shutil
from pathlib import Path

from t5prep.dataset.dataset_card import literal
from t5prep.errors import UsageError
from t5prep.io import atomic_files, uploads
from t5prep.json_values import MALFORMED_ERRORS

WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
TOKENIZERS = ("spiece.model", "tokenizer.json")
# The only files that are pushed from a folder without weights, so that nothing else in it is published by accident.
UNTRAINED = (
    *("README.md", "config.json", "generation_config.json", *TOKENIZERS),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
)


def push(directory: str, *, repo: str, private: bool = False, message: str = "Model exported by t5prep") -> str:
    """Upload an exported directory, or a tokenizer and config.json without weights, and return the address of its page.

    `message` describes the commit of an exported model. Raises UsageError, OutputError.
    """
    model_folder = Path(directory)
    names = {path.name for path in model_folder.iterdir()} if model_folder.is_dir() else set()
    if names.intersection(WEIGHTS):
        return uploads.upload_to_hub(directory, repo=repo, kind="model", private=private, message=message)
    if "config.json" not in names or not names.intersection(TOKENIZERS):
        raise UsageError(
            f"{directory} is neither an exported model (it has no model.safetensors) nor a tokenizer with "
            "a config.json. Export a run into its own folder, then push that folder: t5prep export "
            "--model RUN --out FOLDER",
            code="hub.unexported-model",
        )
    with atomic_files.temporary_folder() as folder:
        for name in names.intersection(UNTRAINED):
            shutil.copy(model_folder / name, folder)
        if "README.md" not in names:
            Path(folder, "README.md").write_text(_card(model_folder, repo.rpartition("/")[2]))
        message = "Tokenizer and config, pushed by t5prep"
        return uploads.upload_to_hub(folder, repo=repo, kind="model", private=private, message=message)


def _card(model_folder: Path, name: str) -> str:
    """Return the model card of a tokenizer and config.json without weights. Raises UsageError."""
    from huggingface_hub import ModelCardData

    try:
        shape = json.loads((model_folder / "config.json").read_bytes())
        kind, size = str(shape["model_type"]), int(shape["vocab_size"])
    except MALFORMED_ERRORS as error:
        reason = f'it has no "{error.args[0]}"' if isinstance(error, KeyError) else error
        raise UsageError(
            f"{model_folder}/config.json is not a valid model configuration ({reason}). Create the file again.",
            code="model.invalid-config",
        ) from error
    header = ModelCardData(library_name="transformers", tags=[kind, "t5prep"]).to_yaml()
    facts = {key: str(value) for key, value in shape.items() if isinstance(value, int | float | str)}
    rows = "\n".join(f"| {literal(key)} | {literal(value)} |" for key, value in facts.items())
    return f"""---
{header}
---

# {name}

A tokenizer, and the shape of a {literal(kind)} with {size:,} embeddings. There are no weights here: a model of this shape
is still to be trained.

```python
from transformers import AutoConfig, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_MODEL")
config = AutoConfig.from_pretrained("THIS_MODEL")
```

`t5prep train --model THIS_MODEL --tokenizer THIS_MODEL --set weights=random ...` trains it from random weights.

## Shape

| config.json | |
|---|---|
{rows}
"""
