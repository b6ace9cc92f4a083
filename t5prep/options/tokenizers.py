"""Define the options of `t5prep tokenizer train`."""

import dataclasses

from t5prep.options.fields import Options, group, option
from t5prep.options.files import FileOptions

# SentencePiece's names of its normalizations of characters; those with cf fold case. T5's is the first.
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")


@dataclasses.dataclass(frozen=True)
class UnigramOptions(Options):
    """Hold the options of SentencePiece. The defaults are those of T5's vocabulary."""

    vocab_size: int = option(  # at least padding, EOS, the unknown token and one piece
        32_000, "vocabulary size in pieces, without the 100 sentinels", minimum=4
    )
    byte_fallback: bool = option(False, "encode unknown characters as bytes")
    split_digits: bool = option(False, "split numbers into digits")
    character_coverage: float = option(  # SentencePiece's bounds
        0.9995, "share of the corpus's characters that the vocabulary covers", minimum=0.98, maximum=1
    )
    normalization: str = option(NORMALIZATIONS[0], "SentencePiece normalization rule", choices=NORMALIZATIONS)


@dataclasses.dataclass(frozen=True)
class TokenizerOptions(Options):
    """Hold all options that decide the bytes of a trained tokenizer, except its source."""

    column: tuple[str, ...] = option((), "column with text; repeat for several [default: text]")
    model: UnigramOptions = group(UnigramOptions)
    # SentencePiece trains on a million lines of 100 bytes within minutes, and more lines change few pieces.
    lines: int = option(1_000_000, "maximum number of distinct training lines, sampled by hash", minimum=1)
    seed: int = option(0, "random seed of the sampled lines", minimum=0, maximum=2**63 - 1)
    files: FileOptions = group(FileOptions)
