"""Check a manifest that a stranger may have written: its size, its types, and the values that readers rely on.

A digest proves only that a manifest is unchanged, not that it is honest. Readers divide by its numbers, loop up to them
and open files by its names. All of this is checked here once, and readers check none of it again. Cheap checks come first.
"""

import itertools
import json
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from t5prep.dataset import shard_files

if TYPE_CHECKING:
    import cattrs

    from t5prep.dataset.manifest import Histogram, Manifest

# Limits of a manifest. A manifest of 100,000 shards has 20 MB and half a million values.
MOST_BYTES = 32 << 20
MOST_VALUES = 1 << 20
# Counts are below 2^53: readers of JSON that use doubles hold them exactly, and sums of a thousand fit into 64 bits.
MOST_COUNT = 1 << 53
MOST_TOKENIZER_IDS = 1 << 24
MOST_LENGTH = 1 << 24  # tokens of a row; no device has memory for more
PERCENTILES = ("p50", "p90", "p95", "p99", "max")  # keys of `Cut.tokens_before`


def parse(content: str | bytes) -> dict[str, Any]:
    """Return the JSON object of a manifest. Raises ValueError with the reason for any other content."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has {len(content):,} bytes, and a manifest at most {MOST_BYTES:,}")
    # An upper bound on the number of values, before parsing takes memory for them. Each value follows a comma or the bracket
    # of its list or object. Marks inside of texts count, too.
    values = sum(
        content.count(mark) if isinstance(content, str) else content.count(mark.encode()) for mark in (",", "[", "{")
    )
    if values > MOST_VALUES:
        raise ValueError(f"it has {values:,} values, and a manifest at most {MOST_VALUES:,}")
    try:
        facts = json.loads(content)
    except json.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    if not isinstance(facts, dict) or "schema" not in facts:
        raise ValueError("it says no schema")
    return facts


def stop_at_the_first_error(converter: "cattrs.Converter") -> None:
    """Make a converter stop at the first wrong element of a list or dict.

    By default, cattrs collects one exception for each wrong element: a million of them for a hostile manifest.
    """

    def is_tuple(kind: object) -> bool:
        return typing.get_origin(kind) is tuple and Ellipsis not in typing.get_args(kind)

    def is_list(kind: object) -> bool:
        return kind is list or (typing.get_origin(kind) in (list, tuple) and not is_tuple(kind))

    def is_dict(kind: object) -> bool:
        return typing.get_origin(kind) is dict

    converter.register_structure_hook_factory(is_list, lambda kind: _elements(converter, kind))
    converter.register_structure_hook_factory(is_tuple, lambda kind: _fixed_elements(converter, kind))
    converter.register_structure_hook_factory(is_dict, lambda kind: _items(converter, kind))


def _elements(converter: "cattrs.Converter", kind: type) -> Callable[[object, type], object]:
    """Return cattrs' hook for `kind`, a list or tuple of any length, which stops at the first wrong element."""
    element = typing.get_args(kind)[0]

    def structure(value: object, _: type) -> object:
        members = (
            _structure_element(converter, index, member, element) for index, member in enumerate(_of_kind(value, list))
        )
        return tuple(members) if typing.get_origin(kind) is tuple else list(members)

    return structure


def _fixed_elements(converter: "cattrs.Converter", kind: type) -> Callable[[object, type], object]:
    """Return cattrs' hook for `kind`, a tuple of a fixed length, which stops at the first wrong element."""
    elements = typing.get_args(kind)

    def structure(value: object, _: type) -> object:
        """Return the tuple of a JSON list with exactly this number of values. Raises ValueError."""
        values = _of_kind(value, list)
        if len(values) != len(elements):
            raise ValueError(f"it has {len(values)} values and not {len(elements)}")
        return tuple(
            _structure_element(converter, index, member, elements[index]) for index, member in enumerate(values)
        )

    return structure


def _items(converter: "cattrs.Converter", kind: type) -> Callable[[object, type], object]:
    """Return cattrs' hook for `kind`, a dict with texts as keys, which stops at the first wrong value."""
    element = typing.get_args(kind)[1]

    def structure(value: object, _: type) -> object:
        return {
            converter.structure(name, str): _structure_element(converter, name, member, element)
            for name, member in _of_kind(value, dict).items()
        }

    return structure


def _of_kind(value: Any, kind: type) -> Any:
    """Return `value` if it is a list (for list) or a dict (for dict). Raises ValueError."""
    if not isinstance(value, (list, tuple) if kind is list else kind):
        raise ValueError(f"{value!r:.40} is no {'list' if kind is list else 'object'}")
    return value


def _structure_element(converter: "cattrs.Converter", key: int | str, value: Any, kind: Any) -> Any:
    """Return the element `value` converted to `kind`. Raises cattrs.BaseValidationError, which names its `key`."""
    import cattrs
    from cattrs.errors import IterableValidationNote

    if kind is Any:
        return value
    try:
        return converter.structure(value, kind)
    except Exception as error:
        short_key = key if isinstance(key, int) else key[:60]
        error.add_note(IterableValidationNote(f"element {short_key!r}", short_key, kind))
        raise cattrs.IterableValidationError("", [error], kind) from None


def reasons(error: "cattrs.BaseValidationError") -> str:
    """Return the first three problems that a converter found, in one line of at most 500 printable characters.

    The texts in them come from the manifest's author, who may be a stranger.
    """
    import cattrs

    message = "; ".join(cattrs.transform_error(error)[:3])
    return "".join(character if character.isprintable() else " " for character in message)[:500]


def problem(manifest: "Manifest") -> str:
    """Return the first value of a manifest that its readers cannot work with, as a sentence; "" if there is none."""
    return next(_problems(manifest), "")


def _problems(manifest: "Manifest") -> Iterator[str]:
    """Yield each value of a manifest that its readers cannot work with, as a sentence."""
    yield from _names(manifest)
    yield from _tokenizer(manifest)
    splits, settings = manifest.splits, manifest.settings
    for name in ("input_length", "target_length"):
        if not 0 < getattr(settings, name) <= MOST_LENGTH:
            yield f"settings.{name} is {getattr(settings, name):,}: a row has 1 to {MOST_LENGTH:,} tokens"
    for name, split in splits.items():
        of_shards = sum(shard.records for shard in split.shards)
        if of_shards != split.records:
            yield f"the split {name!r:.60} has {split.records:,} records, and its shards {of_shards:,}"
        if not 0 <= split.unk_rate <= 1:
            yield f"the split {name!r:.60} has an unk_rate of {split.unk_rate}"
        yield from (f"the split {name!r:.60} says of lengths: {wrong}" for wrong in _histogram(split.lengths))
    if manifest.index is not None:
        if missing := sorted(splits.keys() - manifest.index.every.keys()):
            yield f"index.every does not have the split {missing[0]!r:.60}"
        if min(manifest.index.every.values(), default=1) < 1:
            yield "index.every has pages of no record"
    for field, side_file in (("lengths", manifest.lengths), ("origins", manifest.origins)):
        if side_file is not None and (unknown := sorted(side_file.records.keys() - splits.keys())):
            yield f"{field}.records has {unknown[0]!r:.60}, which is no split"
    percentiles = manifest.ledger["inputs"].get("tokens_before")
    if percentiles is not None and (missing := [name for name in PERCENTILES if name not in percentiles]):
        yield f"ledger.inputs.tokens_before has no {missing[0]}"
    for name, counts in (("inputs", manifest.ledger["inputs"]), ("targets", manifest.ledger["targets"])):
        if unknown_splits := sorted({row["split"] for row in counts["worst"]} - splits.keys()):
            yield f"ledger.{name}.worst has a row of {unknown_splits[0]!r:.60}, which is no split"


def _names(manifest: "Manifest") -> Iterator[str]:
    """Yield each problem with the names of files in the dataset's folder. Names of splits are parts of them."""
    splits = manifest.splits
    shards = [shard.name for shard in manifest.shards]
    side_files = (manifest.index, manifest.lengths, manifest.origins, manifest.rejected_file)
    names = (*splits, *shards, *(file.name for file in side_files if file is not None))
    if (
        name := next((name for name in names if set(name) & {"/", "\\", "\0"} or name in ("", ".", "..")), None)
    ) is not None:
        yield f"it names {name!r:.80}, which is no name of a file beside it"
    if (name := next((name for name in shards if not shard_files.is_shard(name)), None)) is not None:
        yield f"it names the shard {name!r:.80}, which is no name of a shard"
    if len(set(shards)) < len(shards):
        yield "it names a shard twice"


def _tokenizer(manifest: "Manifest") -> Iterator[str]:
    """Yield each problem with the tokenizer: too many ids, or special ids outside of the vocabulary."""
    tokenizer = manifest.tokenizer
    if not tokenizer.vocab_size <= tokenizer.padded_vocab_size <= MOST_TOKENIZER_IDS:
        yield f"a tokenizer of {tokenizer.vocab_size:,} ids, {tokenizer.padded_vocab_size:,} with padding, is none"
    for name in ("pad_id", "eos_id", "unk_id"):
        if getattr(tokenizer, name) >= tokenizer.padded_vocab_size:
            yield f"tokenizer.{name} is {getattr(tokenizer, name):,}, and there are {tokenizer.padded_vocab_size:,} ids"


def _histogram(lengths: "Histogram") -> Iterator[str]:
    """Yield each problem with a split's histogram: a step of 0, or sums above MOST_COUNT."""
    if min(lengths["step"]) < 1:
        yield "step is 0"
    for name, counts in (
        ("joint", ((a + b, n) for a, b, n in lengths["joint"])),
        ("inputs_before", lengths["inputs_before"]),
    ):
        tokens = sum(length * number for length, number in counts)
        if tokens >= MOST_COUNT:
            yield f"{name} counts {tokens:,} tokens, more than can be"
    if sum(number for *_, number in itertools.chain(lengths["joint"], lengths["inputs_before"])) >= MOST_COUNT:
        yield "joint counts more records than can be"


def count(value: object) -> int:
    """Return `value` if it is a whole number from 0 to MOST_COUNT - 1. Raises ValueError for any other value."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST_COUNT:
        raise ValueError(f"{value!r:.40} is no count, a whole number from 0 on")
    return value
