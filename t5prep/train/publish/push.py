"""Upload an exported model to the Hugging Face Hub, with the user's own login."""

from pathlib import Path

from t5prep.errors import UsageError
from t5prep.io import hub_upload


def push(directory: str, *, repo: str, private: bool = False, message: str = "Model exported by t5prep") -> str:
    """Upload an exported directory to the Hugging Face Hub, and return the page's address.

    Raises UsageError, OutputError.
    """
    if not any((Path(directory) / name).is_file() for name in ("model.safetensors", "adapter_model.safetensors")):
        raise UsageError(
            f"{directory} is not an exported model (it has no model.safetensors). Export a run into a folder of its own, and push "
            "that: t5prep export --model RUN --out FOLDER"
        )
    return hub_upload.upload(directory, repo=repo, kind="model", private=private, message=message)
