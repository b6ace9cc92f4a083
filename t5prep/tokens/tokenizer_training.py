"""Train a SentencePiece unigram model with T5's conventions, on a sample of lines.

The conventions are those of T5's tokenizer (Raffel et al. 2020, section 2.2.1): pad 0, EOS 1, unknown 2, no BOS, nmt_nfkc
normalization. The 100 sentinels are not in the model: as in T5, they are the ids above its pieces (see tokenizer.py).

The sample does not depend on the order of the text, on blocks, or on workers. Each distinct line has a keyed hash, and the
sample consists of the lines with the smallest hashes. Sampling parts, and then sampling these samples, gives the same lines
as sampling the whole text.
"""

import hashlib
import heapq
import io
from collections.abc import Iterable, Iterator
from typing import Any

import sentencepiece

from t5prep.errors import TokenizerError, UsageError
from t5prep.options.tokenizers import NORMALIZATIONS, UnigramOptions

# SentencePiece's default. The pieces depend on the number of threads, because each adds up its own expectations, so the
# number is fixed for every machine.
THREADS = 16


def train(lines: Iterable[str], options: UnigramOptions) -> bytes:
    """Return a serialized SentencePiece model: the same bytes for the same lines in the same order.

    Raises UsageError if the text has too few or too many different strings for `options.vocab_size`, and TokenizerError for
    other failures.
    """
    try:
        return unigram_model(
            lines,
            vocab_size=options.vocab_size,
            character_coverage=options.character_coverage,
            byte_fallback=options.byte_fallback,
            split_digits=options.split_digits,
            num_threads=THREADS,
            normalization_rule_name=options.normalization,
        )
    except (RuntimeError, OSError) as error:
        raise _explained(str(error), options.vocab_size) from error


def unigram_model(lines: Iterable[str], **options: Any) -> bytes:
    """Return a serialized SentencePiece unigram model with T5's conventions; `options` are SentencePiece's options.

    Raises RuntimeError or OSError, as SentencePiece does.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="unigram",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        pad_piece="<pad>",
        eos_piece="</s>",
        unk_piece="<unk>",
        minloglevel=2,
        **{"normalization_rule_name": NORMALIZATIONS[0], **options},
    )
    return model.getvalue()


def _explained(error: str, vocab_size: int) -> UsageError | TokenizerError:
    reason = error.strip().splitlines()[-1][-200:] if error.strip() else "no reason given"
    if "Vocabulary size too high" in error:
        max_pieces = error.rsplit("<=", 1)[-1].strip(" .")
        return UsageError(
            f"--vocab-size {vocab_size:,} is too large for this text, which allows at most {max_pieces} "
            "pieces. Lower --vocab-size, or train on more text.",
            code="tokenizer.oversized-vocabulary",
        )
    if "required_chars" in error or "Vocabulary size is smaller" in error:
        return UsageError(
            f"--vocab-size {vocab_size:,} is too small: the characters of this text alone need more "
            "pieces. Raise --vocab-size, or cover fewer characters: --character-coverage 0.99",
            code="tokenizer.undersized-vocabulary",
        )
    return TokenizerError(f"SentencePiece failed to train a tokenizer: {reason}", code="tokenizer.training-failure")


# SentencePiece's trainer skips longer lines (max_sentence_length, in bytes), so they are cut.
LONGEST_LINE_BYTES = 4192
DIGEST_BYTES = 16


class Drawing:
    """Sample `max_lines` distinct lines: those with the smallest hashes, keyed by `seed`. Memory never holds more lines."""

    def __init__(self, max_lines: int, *, seed: int) -> None:
        self.most = max_lines
        self.seed = seed
        self._key = seed.to_bytes(8, "big", signed=True)
        self._heap: list[tuple[int, str]] = []  # (-hash, line): the largest hash is on top and is removed first
        self._priorities: set[int] = set()

    def add(self, lines: Iterable[str]) -> None:
        """Offer more lines to the sample."""
        heap, priorities, key = self._heap, self._priorities, self._key
        for line in lines:
            data = line.encode("utf-8", "surrogatepass")
            priority = -int.from_bytes(hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key).digest(), "big")
            if priority in priorities:
                continue
            if len(heap) < self.most:
                heapq.heappush(heap, (priority, line))
            elif priority > heap[0][0]:
                priorities.discard(heapq.heappushpop(heap, (priority, line))[0])
            else:
                continue
            priorities.add(priority)

    def lines(self) -> list[str]:
        """Return the sample, in the order of the hashes."""
        return [line for _, line in sorted(self._heap, reverse=True)]


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text that are not blank, stripped. Lines longer than LONGEST_LINE_BYTES are cut at spaces.

    >>> list(lines_of("one \\n\\n two"))
    ['one', 'two']
    """
    for line in text.split("\n"):
        if stripped := line.strip():
            yield from _cut(stripped) if len(stripped) * 4 > LONGEST_LINE_BYTES else (stripped,)


def _cut(line: str) -> Iterator[str]:
    """Yield parts of a line of at most LONGEST_LINE_BYTES, cut at spaces; a longer word is cut at the limit."""
    data = line.encode("utf-8", "surrogatepass")
    while len(data) > LONGEST_LINE_BYTES:
        end = data.rfind(b" ", 1, LONGEST_LINE_BYTES + 1)
        if end < 0:
            end = LONGEST_LINE_BYTES
            while data[end] & 0xC0 == 0x80:  # do not cut inside a character
                end -= 1
        yield data[:end].decode("utf-8", "surrogatepass").strip()
        data = data[end:].lstrip(b" ")
    if data:
        yield data.decode("utf-8", "surrogatepass")
