"""Train a SentencePiece unigram model with T5's conventions.

The conventions are those of T5's own (Raffel et al. 2020, section 2.2.1): pad 0, EOS 1, unknown 2, no BOS, nmt_nfkc
normalization. The 100 sentinels are not in the model: as in T5, they are the ids above its pieces (see tokenizer.py).
"""

import io
from collections.abc import Iterable
from typing import Any

import sentencepiece

from t5prep.errors import TokenizerError, UsageError

# T5's own size and coverage: the share of the text's characters that have a piece; the rarest are unknown.
VOCAB_SIZE = 32_000
FEWEST_PIECES = 4
CHARACTER_COVERAGE = 0.9995
# SentencePiece's default. The pieces depend on the number of threads, because each adds up its own expectations, so the
# number is fixed for every machine.
THREADS = 16


def train(
    lines: Iterable[str],
    *,
    vocab_size: int = VOCAB_SIZE,
    byte_fallback: bool = False,
    split_digits: bool = False,
    character_coverage: float = CHARACTER_COVERAGE,
) -> bytes:
    """Return a serialized SentencePiece model: the same bytes for the same lines in the same order.

    `byte_fallback` spells unknown characters in 256 byte pieces instead of losing them; `split_digits` makes each digit
    a piece.

    Raises UsageError where the text has too few or too many different strings for `vocab_size`.
    """
    if vocab_size < FEWEST_PIECES:
        raise UsageError(
            f"--vocab-size {vocab_size}: padding, the end of a text, the unknown and one piece of text are {FEWEST_PIECES}. "
            "Ask for at least some hundred"
        )
    try:
        return unigram_model(
            lines,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            split_digits=split_digits,
            num_threads=THREADS,
        )
    except (RuntimeError, OSError) as error:
        raise _explained(str(error), vocab_size) from error


def unigram_model(lines: Iterable[str], **options: Any) -> bytes:
    """Return a serialized SentencePiece unigram model with T5's conventions; `options` are SentencePiece's own.

    Raises RuntimeError or OSError, as SentencePiece does.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="unigram",
        normalization_rule_name="nmt_nfkc",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        pad_piece="<pad>",
        eos_piece="</s>",
        unk_piece="<unk>",
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def _explained(error: str, vocab_size: int) -> UsageError | TokenizerError:
    reason = error.strip().splitlines()[-1][-200:] if error.strip() else "no reason given"
    if "Vocabulary size too high" in error:
        most = error.rsplit("<=", 1)[-1].strip(" .")
        return UsageError(
            f"--vocab-size {vocab_size:,} is too large for this text: at most {most} pieces can be had of it. "
            f"Ask for at most that many, or train on more text."
        )
    if "required_chars" in error or "Vocabulary size is smaller" in error:
        return UsageError(
            f"--vocab-size {vocab_size:,} is too small: the characters of this text alone need more pieces. "
            "Ask for more, or cover fewer characters: --character-coverage 0.99"
        )
    return TokenizerError(f"SentencePiece could not be trained: {reason}")
