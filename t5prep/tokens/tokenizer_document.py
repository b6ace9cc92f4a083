"""Define types for the JSON files of a tokenizer, as `tokenizers` and `transformers` write them; any entry may be missing."""

from typing import TypedDict


class Pattern(TypedDict, total=False):
    """The text that a step searches for: exactly one of the two entries exists."""

    String: str
    Regex: str


class TemplateToken(TypedDict):
    """A special token of a template: its text, and its ids."""

    id: str
    ids: list[int]
    tokens: list[str]


class TemplateName(TypedDict):
    """The name of an element of a template: a special token's text, or "A" or "B" for one of the texts."""

    id: str
    type_id: int


class TemplatePart(TypedDict, total=False):
    """An element of a template: exactly one of the two entries exists."""

    Sequence: TemplateName
    SpecialToken: TemplateName


class Step(TypedDict, total=False):
    """A normalizer, pre-tokenizer, post-processor or decoder. Its `type` decides which of the other entries it has."""

    type: str
    normalizers: "list[Step]"
    pretokenizers: "list[Step]"
    processors: "list[Step]"
    decoders: "list[Step]"
    precompiled_charsmap: str | None
    pattern: Pattern
    content: str
    prepend: str
    behavior: str
    replacement: str
    prepend_scheme: str
    split: bool
    add_prefix_space: bool | None
    use_regex: bool
    trim_offsets: bool
    individual_digits: bool
    strip_left: bool
    strip_right: bool
    start: int
    stop: int
    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool | None
    lowercase: bool
    prefix: str
    cleanup: bool
    cls: tuple[str, int]
    sep: tuple[str, int]
    single: list[TemplatePart]
    pair: list[TemplatePart]
    special_tokens: dict[str, TemplateToken]


class AddedToken(TypedDict, total=False):
    """A token that is found in a text before the model tokenizes it, and the rules by which it is found."""

    id: int
    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool


class Model(TypedDict, total=False):
    """The model with its vocabulary: pieces and scores for the type Unigram, pieces and ids for other types."""

    type: str
    unk_id: int | None
    unk_token: str | None
    dropout: float | None
    fuse_unk: bool
    byte_fallback: bool
    ignore_merges: bool
    continuing_subword_prefix: str
    end_of_word_suffix: str
    max_input_chars_per_word: int
    vocab: dict[str, int] | list[tuple[str, float]]
    merges: list[list[str]]


class Document(TypedDict, total=False):
    """The content of a `tokenizer.json`."""

    version: str
    truncation: None
    padding: None
    added_tokens: list[AddedToken]
    normalizer: Step | None
    pre_tokenizer: Step | None
    post_processor: Step | None
    decoder: Step | None
    model: Model


class SmallFile(TypedDict, total=False):
    """The entries that are read from `tokenizer_config.json`, `special_tokens_map.json`, and a model's `config.json`."""

    model_type: str
    tokenizer_class: str
    added_tokens_decoder: dict[str, AddedToken]
    additional_special_tokens: list[str | AddedToken]
    extra_special_tokens: list[str | AddedToken] | dict[str, str | AddedToken]
    extra_ids: int
    add_bos_token: bool
    add_eos_token: bool
    add_prefix_space: bool | None
    do_lower_case: bool
    strip_accents: bool | None
    tokenize_chinese_chars: bool
    split_by_punct: bool
    keep_accents: bool
