"""Finding a tokenizer by what the user calls it: the sample's, a file, a directory, a Hub name."""

import difflib
from pathlib import Path

from t5prep.errors import TokenizerError
from t5prep.io import suggestions
from t5prep.tokens.tokenizer import Tokenizer

# What a SentencePiece model is called in directories of Hugging Face layout.
MODEL_NAMES = ("spiece.model", "sentencepiece.model", "tokenizer.model", "sentencepiece.bpe.model")


def load(name: str) -> Tokenizer:
    """The tokenizer of a name: `sample:`, a `.model` file, a directory with one, or a Hub name. Raises TokenizerError."""
    path = find(name)
    try:
        return Tokenizer(path.read_bytes(), name=name)
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read ({error.strerror}).") from error


def find(name: str) -> Path:
    """The model file of a name, fetched from the Hub where it is no local path. Raises TokenizerError."""
    if name == "sample:":
        from t5prep.sources import sample

        return sample.tokenizer_path()
    path = Path(name)
    if path.is_dir():
        found = [path / model for model in MODEL_NAMES if (path / model).exists()]
        if not found:
            raise TokenizerError(f"{name} holds no SentencePiece model; one of {', '.join(MODEL_NAMES)} is looked for.")
        return found[0]
    if path.exists():
        return path
    if name == "sample" or (name.endswith(":") and difflib.get_close_matches(name, ["sample:"])):
        raise TokenizerError(f'"{name}" is no tokenizer. Did you mean "sample:"? It is the small one that is built in.')
    meant = suggestions.mistyped(path) if "/" in name else ""
    if meant or path.suffix == ".model" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TokenizerError(f"{name} does not exist.{meant} Pass a spiece.model file, its directory, or a Hub name.")
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    import huggingface_hub
    from huggingface_hub import errors

    for model in MODEL_NAMES[:3]:
        try:
            return Path(huggingface_hub.hf_hub_download(name, model))
        except (errors.EntryNotFoundError, errors.LocalEntryNotFoundError) as error:
            if isinstance(error, errors.LocalEntryNotFoundError):
                raise TokenizerError(
                    f"{name} is no local path, and the Hugging Face Hub cannot be reached. "
                    "Pass a spiece.model file or its directory."
                ) from None
        except (errors.RepositoryNotFoundError, errors.HFValidationError):
            raise TokenizerError(
                f'"{name}" is neither a local path nor a model on the Hugging Face Hub (or it is private and you are not '
                "logged in: `hf auth login`). T5's own is google-t5/t5-base."
            ) from None
        except errors.HfHubHTTPError as error:
            raise TokenizerError(f"{name} could not be fetched from the Hub ({error.response.status_code}).") from None
    raise TokenizerError(f"{name} on the Hub holds no SentencePiece model ({', '.join(MODEL_NAMES[:3])}).")
