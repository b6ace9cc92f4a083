"""Save tokenizers and encode texts with the transformers of the Python that runs this file, 4.57 or 5.

It imports nothing of t5prep, so that an environment with another transformers can run it. Its input and its output are JSON:

    python transformers_tokenizers.py < {"save": [{"folder", "out", "options", "tokens", "special"}], "encode": {folder: [texts]}}

options: those of AutoTokenizer.from_pretrained; tokens, special: texts, or the arguments of an AddedToken
"""

import json
import sys
from typing import Any


def load(folder: str, **options: Any) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)


def save(folder: str, out: str, options: dict[str, Any], tokens: list[Any], special: list[Any]) -> str:
    """Save a folder's tokenizer with added tokens. Return why it cannot be saved, or ""."""
    from transformers import AddedToken

    try:
        tokenizer = load(folder, **options)
        for added, are_special in ((tokens, False), (special, True)):
            if added:
                added_tokens = [AddedToken(**token) if isinstance(token, dict) else token for token in added]
                tokenizer.add_tokens(added_tokens, special_tokens=are_special)
        tokenizer.save_pretrained(out)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def encode(folder: str, texts: list[str]) -> list[list[int]] | str:
    """Return the ids of texts with special tokens around them, or why a folder has none."""
    try:
        tokenizer = load(folder)
        return [tokenizer(text, verbose=False)["input_ids"] for text in texts]
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    request = json.load(sys.stdin)
    answer = {
        "saved": [save(**save_request) for save_request in request.get("save", [])],
        "encoded": {folder: encode(folder, texts) for folder, texts in request.get("encode", {}).items()},
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
