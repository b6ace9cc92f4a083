"""Small vocabularies of encoders in the files of published models, made in a test's folder from a few sentences.

They are the same in every process. Of the trainers of `tokenizers`, those of BPE give the same vocabulary each time; those of
WordPiece and Unigram order what is equally frequent by a hash that is drawn anew in every process, so they are not used.
"""

import collections
import io
import json
from collections.abc import Iterable
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

    rules = BertWordPieceTokenizer(lowercase=lowercase)
    words = collections.Counter[str]()
    for sentence in SENTENCES:
        words.update(word for word, _ in rules.pre_tokenizer.pre_tokenize_str(rules.normalizer.normalize_str(sentence)))
    # Characters, the beginnings and ends of words that several words have, and then whole words, the most frequent first.
    characters = sorted({character for word in words for character in word})
    pieces = [*characters, *(f"##{character}" for character in characters)]
    for length in (2, 3):
        ends = collections.Counter(
            part for word in words if len(word) > length for part in (word[:length], f"##{word[-length:]}")
        )
        pieces += sorted(part for part, count in ends.items() if count > 1)
    pieces += sorted(words, key=lambda word: (-words[word], word))
    vocabulary = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]))[:200]
    tokenizer = BertWordPieceTokenizer({piece: id for id, piece in enumerate(vocabulary)}, lowercase=lowercase)
    return _written(folder, tokenizer, "bert", {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"})


def roberta(folder: Path) -> Path:
    """Write the `vocab.json` and `merges.txt` of a byte-level BPE."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        SENTENCES, vocab_size=400, min_frequency=1, special_tokens=ROBERTA_SPECIAL, show_progress=False
    )
    return _written(folder, tokenizer, "roberta", {"tokenizer_class": "RobertaTokenizer"})


def xlm_roberta(folder: Path) -> Path:
    """Write the `tokenizer.json` of a Unigram model whose ids RoBERTa's special tokens shift, as XLM-RoBERTa's do.

    Its parts are those of FacebookAI/xlm-roberta-base, with T5's compiled map of characters.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    from t5prep.sources import sample
    from t5prep.tokens import model_proto

    special = ROBERTA_SPECIAL[:4]
    learned = unigram_pieces(SENTENCES, size=150 - len(special), unknown="<unk>")
    tokenizer = Tokenizer(
        models.Unigram([*((piece, 0.0) for piece in special), *learned], unk_id=special.index("<unk>"))
    )
    charsmap = model_proto.charsmap(Path(sample.tokenizer_path()).read_bytes())
    tokenizer.normalizer = normalizers.Precompiled(charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens([*special, "<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "sentencepiece.bpe.model").write_bytes(b"what a tokenizer.json was made of")
    (folder / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer"}))
    return folder


def modernbert(folder: Path) -> Path:
    """Write the `tokenizer.json` of a byte-level BPE with NFC and added tokens, as answerdotai/ModernBERT-base has it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=True)
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        special_tokens=["|||IP_ADDRESS|||", "<|padding|>", *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_tokens([AddedToken(" " * width, normalized=True) for width in (4, 3, 2)])
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    document = json.loads(tokenizer.to_str())
    for added_token in document["added_tokens"]:
        added_token["special"] = added_token["special"] and not added_token["content"].startswith("|||")
    return _templated(folder, Tokenizer.from_str(json.dumps(document)), ("[CLS]", "[SEP]", "[PAD]", "[UNK]"))


def mmbert(folder: Path) -> Path:
    """Write the `tokenizer.json` of a BPE with bytes for unknown characters, as jhu-clsp/mmBERT-base has Gemma's."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")  # no piece goes across words
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=150, show_progress=False, special_tokens=special)
    )
    document = json.loads(tokenizer.to_str())
    for piece in ("▁▁", *(f"<0x{byte:02X}>" for byte in range(256))):
        document["model"]["vocab"][piece] = len(document["model"]["vocab"])
    document["model"] |= {"byte_fallback": True, "fuse_unk": True, "merges": [["▁", "▁"], *document["model"]["merges"]]}
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens(["\n\n", "<table>"])
    return _templated(folder, tokenizer, ("<bos>", "<eos>", "<pad>", "<unk>"))


def eurobert(folder: Path) -> Path:
    """Write the `tokenizer.json` of EuroBERT/EuroBERT-210m: Llama 3.1's, whose words are split by a pattern before they are bytes.

    By the conversion of its authors (tokenizer_config of github.com/tesselwisman/EuroBERT, a copy of theirs) and Llama 3's
    pre_tokenizer and post_processor: `<|begin_of_text|>` before each text, nothing after it, and EOS for padding.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    first, end, mask = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
    tokenizer.add_special_tokens([first, end, mask])
    template = processors.TemplateProcessing(
        single=f"{first} $A", pair=f"{first} $A {first}:1 $B:1", special_tokens=[(first, tokenizer.token_to_id(first))]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "eurobert"}))
    base_config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    tokens = {"bos_token": first, "eos_token": end, "pad_token": end, "mask_token": mask}
    (folder / "tokenizer_config.json").write_text(json.dumps({**base_config, **tokens}))
    return folder


def unigram_pieces(sentences: Iterable[str], *, size: int, unknown: str) -> list[tuple[str, float]]:
    """Return up to `size` pieces of a unigram model that SentencePiece trains, each with its score, without special ones."""
    import sentencepiece

    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=trained,
        vocab_size=size + 1,
        unk_piece=unknown,
        hard_vocab_limit=False,
        character_coverage=1.0,
        **{"unk_id": 0, "bos_id": -1, "eos_id": -1, "pad_id": -1, "minloglevel": 2, "num_threads": 1},
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    return [(model.id_to_piece(id), model.get_score(id)) for id in range(1, model.get_piece_size())]


def deberta(folder: Path) -> Path:
    """Train the `spm.model` of a DeBERTa-v3, whose special tokens have the ids of microsoft/deberta-v3-base; [MASK] is not in it."""
    import sentencepiece

    model_file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model_file,
        vocab_size=100,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
        **{"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    )
    folder.mkdir(parents=True)
    (folder / "spm.model").write_bytes(model_file.getvalue())
    (folder / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "spm"}))
    return folder


def _templated(folder: Path, tokenizer, special_tokens: tuple[str, str, str, str]) -> Path:
    """Write a ModernBERT's tokenizer, with the tokens before and after a text, of padding and of what is unknown."""
    from tokenizers import processors

    first, last, pad, unknown = special_tokens
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B {last}",
        special_tokens=[(text, tokenizer.token_to_id(text)) for text in (first, last)],
    )
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "modernbert"}))
    tokens = {"cls_token": first, "sep_token": last, "pad_token": pad, "unk_token": unknown}
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


def _written(folder: Path, tokenizer, model_type: str, config: dict) -> Path:
    folder.mkdir(parents=True)
    tokenizer.save_model(str(folder))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


GEMMA_SPECIAL = {"pad_piece": "<pad>", "eos_piece": "<eos>", "bos_piece": "<bos>", "unk_piece": "<unk>"}


def gemma(folder: Path, sentences: list[str], *, size: int = 600) -> Path:
    """Write a `tokenizer.model` with the switches and the own pieces of google/gemma-2-2b's, and 99 pieces for any use."""
    import sentencepiece

    model_file = io.BytesIO()
    user_pieces = ["<mask>", *(f"<unused{number}>" for number in range(99)), "\n", "\n\n", "▁▁", "▁▁▁", "<table>"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model_file,
        model_type="bpe",
        vocab_size=size,
        byte_fallback=True,
        split_digits=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        normalization_rule_name="identity",
        user_defined_symbols=user_pieces,
        **{"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "minloglevel": 2, "num_threads": 1},
        **GEMMA_SPECIAL,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model_file.getvalue())
    return folder


def codet5(folder: Path) -> Path:
    """Write the files of Salesforce/codet5-base: RoBERTa's, with T5's order of `<pad>` and with 100 sentinels beside them."""
    from tokenizers import ByteLevelBPETokenizer

    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        SENTENCES, vocab_size=400, min_frequency=1, special_tokens=special, show_progress=False
    )
    folder.mkdir(parents=True)
    tokenizer.save_model(str(folder))
    first = tokenizer.get_vocab_size()
    sentinels = {f"<extra_id_{99 - sentinel_index}>": first + sentinel_index for sentinel_index in range(100)}
    (folder / "added_tokens.json").write_text(json.dumps(sentinels))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    (folder / "config.json").write_text(json.dumps({"model_type": "t5", "vocab_size": first + 100}))
    return folder
