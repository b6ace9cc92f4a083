"""Upload a folder to the Hugging Face Hub, with the user's own login."""

from collections.abc import Sequence

import huggingface_hub
from huggingface_hub import errors

from t5prep.errors import OutputError, UsageError


def upload(
    directory: str, *, repo: str, kind: str, private: bool, message: str, names: Sequence[str] | None = None
) -> str:
    """Upload a folder, or only the files of these names in it, and return the page's address.

    `kind` is "model" or "dataset". Raises UsageError where the user is not logged in, OutputError where the Hub refuses.
    """
    api = huggingface_hub.HfApi()
    try:
        created = api.create_repo(repo, repo_type=kind, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=created.repo_id,
            repo_type=kind,
            folder_path=directory,
            commit_message=message,
            allow_patterns=None if names is None else list(names),
        )
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
