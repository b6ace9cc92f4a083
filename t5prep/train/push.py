"""Upload an exported model to the Hugging Face Hub, with the user's own login."""

from pathlib import Path

import huggingface_hub
from huggingface_hub import errors

from t5prep.errors import OutputError, UsageError


def push(directory: str, *, repo: str, private: bool = False, message: str = "Model exported by t5prep") -> str:
    """Upload an exported directory to the Hugging Face Hub, and return the page's address.

    Raises UsageError, OutputError.
    """
    if not any((Path(directory) / name).is_file() for name in ("model.safetensors", "adapter_model.safetensors")):
        raise UsageError(
            f"{directory} is not an exported model (it has no model.safetensors). Export a run into a folder of its own, and push "
            "that: t5prep export --model RUN --out FOLDER"
        )
    api = huggingface_hub.HfApi()
    try:
        created = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=created.repo_id, folder_path=directory, commit_message=message)
    except errors.LocalTokenNotFoundError as error:
        raise UsageError("You are not logged in to the Hugging Face Hub: hf auth login") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status == 401:
            raise UsageError("The Hugging Face Hub does not know you (401). Log in: hf auth login") from error
        raise OutputError(
            f"{repo} cannot be written on the Hub ({status}): your token needs write access there."
        ) from error
    except (errors.HFValidationError, OSError) as error:
        raise OutputError(f"{repo} cannot be pushed: {str(error).splitlines()[0][:200]}") from error
    return str(created)
