"""Small vocabularies of encoders in the files of published models, made in a test's folder from a few sentences."""

import json
from pathlib import Path

SENTENCES = [
    "a gorgeous , witty , seductive movie .",
    "it 's a charming and often affecting journey .",
    "the mesmerizing performances of the leads keep the film grounded .",
    "unflinchingly bleak and desperate",
    "Ünïcödé naïve 中文 don't",
] * 20
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def bert(folder: Path, *, lowercase: bool = True) -> Path:
    """Write a `vocab.txt` of word pieces, cased or uncased, and the files by which transformers knows it."""
    from tokenizers import BertWordPieceTokenizer

    made = BertWordPieceTokenizer(lowercase=lowercase)
    made.train_from_iterator(SENTENCES, vocab_size=200, min_frequency=1, show_progress=False)
    return _written(folder, made, "bert", {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"})


def roberta(folder: Path) -> Path:
    """Write the `vocab.json` and `merges.txt` of a byte-level BPE."""
    from tokenizers import ByteLevelBPETokenizer

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(
        SENTENCES, vocab_size=400, min_frequency=1, special_tokens=ROBERTA_SPECIAL, show_progress=False
    )
    return _written(folder, made, "roberta", {"tokenizer_class": "RobertaTokenizer"})


def _written(folder: Path, made, model_type: str, config: dict) -> Path:
    folder.mkdir(parents=True)
    made.save_model(str(folder))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
