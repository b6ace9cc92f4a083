"""Search for near-duplicates in distributable steps: pairs that share a band, clusters of similar rows, rows to drop."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset.manifest import Cluster
from t5prep.dataset.settings import Settings
from t5prep.io import atomic_files
from t5prep.preparation import placement
from t5prep.preparation.near_duplicates import components, sketches
from t5prep.preparation.near_duplicates.components import labels
from t5prep.preparation.near_duplicates.sketches import ROWS, Bands, Shingles, Sketch, mix, of_lists
from t5prep.preparation.sorted_pairs import SortedPairs
from t5prep.tokens.ragged import run_starts

# If more rows than this share a band, each is compared with this many neighbours only. So the work stays linear for a
# corpus made from one template. Clusters stay connected all the same, because their rows share many bands.
WINDOW = 32
# Number of elements that are looked up at a time, to bound memory.
_CHUNK = 1 << 20


class Sets(NamedTuple):
    """Sets of shingles, as one sorted array `keys`, `int64[total]`: the key of an element is set index · `width` + element.

    Set i has `keys[begins[i]:begins[i + 1]]`. Elements are indices in `hashes`, `uint64[width]`, the distinct hashes.
    """

    keys: np.ndarray
    begins: np.ndarray
    width: int
    hashes: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """The number of elements of each set, `int64[sets]`."""
        return np.diff(self.begins)

    def take(self, order: np.ndarray) -> "Sets":
        """Return the sets with these indices, in their order."""
        sizes = self.sizes[order]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        owner = np.repeat(np.arange(len(order)), sizes)
        # The index in `keys` of each element of the result.
        indices = np.arange(begins[-1]) - begins[owner] + self.begins[order][owner]
        # A key contains the number of its set, which changes here.
        return Sets(self.keys[indices] + (owner - order[owner]) * self.width, begins, self.width, self.hashes)

    def contents(self) -> np.ndarray:
        """Return a digest of each set, `uint64[sets]`, which is equal for equal sets. No set may be empty."""
        return np.add.reduceat(mix(self.hashes[self.keys % self.width]), self.begins[:-1])


def sets(shingles: Shingles) -> Sets:
    """Return the set of shingles of each text."""
    hashes, elements = np.unique(shingles.hashes, return_inverse=True)
    width = max(1, len(hashes))
    owner = np.repeat(np.arange(len(shingles.begins) - 1), np.diff(shingles.begins))
    keys = np.sort(owner * width + elements)
    keys = keys[run_starts(keys)]
    return Sets(keys, np.searchsorted(keys, np.arange(len(shingles.begins)) * width), width, hashes)


def similarity(sets: Sets, pairs: np.ndarray) -> np.ndarray:
    """Return the Jaccard similarity of each pair of sets, `float64[pairs]`: shared elements divided by all elements.

    `pairs` are indices of sets, `int64[pairs, 2]`. Neither set of a pair may be empty.
    """
    sizes = sets.sizes
    swap = sizes[pairs[:, 0]] > sizes[pairs[:, 1]]
    small = np.where(swap, pairs[:, 1], pairs[:, 0])
    large = np.where(swap, pairs[:, 0], pairs[:, 1])
    shared = np.zeros(len(pairs), np.int64)
    ends = np.cumsum(sizes[small])
    begin = 0
    # In chunks, because the elements of all pairs together may not fit into memory.
    while begin < len(pairs):
        elements_before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, elements_before + _CHUNK, side="right")))
        shared[begin:end] = _shared(sets, small[begin:end], large[begin:end])
        begin = end
    return shared / (sizes[small] + sizes[large] - shared)


def _shared(sets: Sets, small: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Return the number of elements that each pair of sets shares, `int64[pairs]`. `small` and `large` are indices of sets."""
    sizes = sets.sizes[small]
    pair = np.repeat(np.arange(len(small)), sizes)
    first = np.cumsum(sizes) - sizes
    indices = np.arange(len(pair)) - first[pair] + sets.begins[small][pair]
    # An element of the small set, as the key that it would have in the large set.
    sought = sets.keys[indices] - small[pair] * sets.width + large[pair] * sets.width
    match_indices = np.minimum(np.searchsorted(sets.keys, sought), len(sets.keys) - 1)
    return np.bincount(pair[sets.keys[match_indices] == sought], minlength=len(small))


def clustered(shingles: Shingles, sets: Sets, *, bands: Bands, threshold: float) -> np.ndarray:
    """Return for each text the index of the first text in its cluster, `int64[texts]`. `sets` are the sets of its shingles.

    Two texts are linked if they share a band and the Jaccard similarity of their sets reaches `threshold`. Clusters
    are the connected components. Texts must be ordered by their content, so that the same texts form the same
    clusters.
    """
    parent = np.arange(len(sets.sizes))
    if len(parent) < 2:
        return parent
    values = sketches.band_values(sketches.signatures(shingles, hashes=bands.bands * bands.rows), bands=bands)
    linked = refused = np.zeros((0, 2), np.int64)
    # Pass by pass, because pairs within one cluster need no comparison any more.
    for pairs in _passes(sets.contents(), values):
        pairs = np.unique(pairs[parent[pairs[:, 0]] != parent[pairs[:, 1]]], axis=0)
        pairs = pairs[~np.isin(_codes(pairs, len(parent)), _codes(refused, len(parent)))]
        is_similar = _are_similar(sets, pairs, threshold)
        refused = np.concatenate([refused, pairs[~is_similar]])
        linked = np.concatenate([linked, pairs[is_similar]])
        parent = labels(linked, len(parent))
    return parent


def _passes(digests: np.ndarray, values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs of texts to compare: first those of equal content, then neighbours in a band, nearest first.

    Only the first of several texts with equal content is compared by bands.
    """
    _, first, contents = np.unique(digests, return_index=True, return_inverse=True)
    yield np.stack([first[contents], np.arange(len(digests))], axis=1)
    representatives = np.sort(first)
    order = np.argsort(values[representatives], axis=0, kind="stable")  # for each band by value, ties by text
    ordered = np.take_along_axis(values[representatives], order, axis=0)
    members = representatives[order]
    # Nearest neighbours first: they join most rows of a cluster, which then need no comparison.
    for distance in range(1, min(WINDOW, len(representatives) - 1) + 1):
        is_equal = ordered[distance:] == ordered[:-distance]
        # No band has so many equal values, and so none has more.
        if not is_equal.any():
            return
        yield np.stack([members[:-distance][is_equal], members[distance:][is_equal]], axis=1)


def _codes(pairs: np.ndarray, texts: int) -> np.ndarray:
    """Return one number for each pair, `int64[pairs]`, so that pairs can be compared."""
    return pairs[:, 0] * texts + pairs[:, 1]


def _are_similar(sets: Sets, pairs: np.ndarray, threshold: float) -> np.ndarray:
    """Return which pairs reach the threshold, `bool[pairs]`. Most pairs are excluded by their sizes alone."""
    small, large = np.sort(sets.sizes[pairs], axis=1).T
    # The similarity of two sets is at most the ratio of their sizes.
    is_similar = small >= threshold * large
    is_similar[is_similar] = similarity(sets, pairs[is_similar]) >= threshold
    return is_similar


# Rows to drop: each cluster keeps one row, by a rule that does not depend on the order of rows.

# A dropped row: its split, position and place in the source, and the row that is kept instead.
DROPPED = pa.schema(
    [
        ("split", pa.string()),
        ("high", pa.uint64()),
        ("low", pa.uint64()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("kept_file", pa.string()),
        ("kept_row", pa.int64()),
        ("kept_id", pa.string()),
        ("similarity", pa.float64()),
    ]
)
# The `split` of rows of earlier datasets, which are preferred to all others and never dropped.
EARLIER = ""
# Number of clusters that the manifest lists, largest first.
MAX_LISTED_CLUSTERS = 10


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Rows to drop (DROPPED), and counts: clusters, dropped rows in another split than the kept row, and the largest clusters.

    Rows are sorted by split and position. They are in `dropped`, or in the file `path`.
    """

    dropped: pa.Table
    clusters: int = 0
    across_splits: int = 0
    largest: tuple[Cluster, ...] = ()
    path: str = ""

    def spooled(self, path: Path) -> "Repeats":
        """Write the rows to a scratch file, and return the Repeats that read them from there."""
        with atomic_files.scratch(path) as temporary, pa.ipc.new_stream(str(temporary), DROPPED) as writer:
            writer.write_table(self.dropped)
        return dataclasses.replace(self, dropped=DROPPED.empty_table(), path=str(path))

    def read(self) -> pa.Table:
        """Return the rows, memory-mapped if they are in a file."""
        if not self.path:
            return self.dropped
        with pa.memory_map(self.path) as file:
            return pa.ipc.open_stream(file).read_all()

    def cut(self, split: str, shards: int) -> Iterator[tuple[int, "Repeats"]]:
        """Yield (shard number, Repeats without counts) for each shard of a split with rows to drop. The split has `shards` shards."""
        rows = self.read()
        rows = rows.filter(pc.equal(rows["split"], split))
        shard_numbers = np.searchsorted(_inner_edges(shards), rows["high"].to_numpy(), side="right")
        begins = run_starts(shard_numbers)
        for begin, size in zip(begins.tolist(), np.diff(begins, append=len(shard_numbers)).tolist(), strict=True):
            yield int(shard_numbers[begin]), Repeats(rows.slice(begin, size))

    def slice(self, split: str, begin: int, end: int) -> "Repeats":
        """Return the rows of a split with `begin <= high < end`, without counts."""
        high = self.dropped["high"].to_numpy()
        is_in_range = (self.dropped["split"].to_numpy(zero_copy_only=False) == split) & (high >= np.uint64(begin))
        is_in_range &= high <= np.uint64(end - 1)
        return Repeats(self.dropped.filter(pa.array(is_in_range)))

    def merge(self, other: "Repeats") -> "Repeats":
        """Return the summed counts of both, without rows."""
        largest = sorted(
            [*self.largest, *other.largest], key=lambda cluster: (-cluster.rows, cluster.file, cluster.row)
        )
        return Repeats(
            DROPPED.empty_table(),
            self.clusters + other.clusters,
            self.across_splits + other.across_splits,
            tuple(largest[:MAX_LISTED_CLUSTERS]),
        )


@functools.lru_cache(maxsize=64)
def _inner_edges(shards: int) -> np.ndarray:
    """Return the first position of each shard of a split but the first shard, `uint64[shards - 1]`."""
    return np.array(placement.shard_edges(shards)[1:-1], np.uint64)


def none() -> Repeats:
    """Return the empty Repeats."""
    return Repeats(DROPPED.empty_table())


def concatenate(parts: Iterable[Repeats]) -> Repeats:
    """Return the rows of several Repeats as one, without counts."""
    return Repeats(pa.concat_tables([DROPPED.empty_table(), *(part.dropped for part in parts)]))


def precedence(split: str) -> int:
    """Return the rank of a split that keeps a text: test before validation before any other before train.

    >>> sorted(["train", "dev", "validation", "test"], key=precedence)
    ['test', 'validation', 'dev', 'train']
    """
    return {EARLIER: -1, "test": 0, "validation": 1, "train": 3}.get(split, 2)


def _different(pieces: Iterable[pa.Table]) -> tuple[pa.Table, Sets, pa.ChunkedArray]:
    """Return rows without shingles, the distinct sets of shingles, and these sets as lists.

    New columns of the rows: `file`, `content` (digest of the set), `elements` (its size), and `number` (its index
    among the distinct sets). Each distinct set is held once, because a template may have millions of equal rows.
    """
    rows, lists, known_contents, hashed = list[pa.Table](), list[pa.ChunkedArray](), np.zeros(0, np.uint64), None
    for batch in _batches(pieces):
        hashed = sets(of_lists(batch["shingles"]))
        content = hashed.contents()
        different, first_rows = np.unique(content, return_index=True)
        first_rows = np.sort(first_rows[~np.isin(different, known_contents)])
        lists.append(batch["shingles"].take(pa.array(first_rows)))
        known_contents = np.append(known_contents, content[first_rows])
        order = np.argsort(known_contents)
        numbers = order[np.searchsorted(known_contents[order], content)]
        new_columns = {"content": content, "elements": hashed.sizes, "number": numbers}
        batch = batch.drop_columns("shingles")
        for name, column in new_columns.items():
            batch = batch.append_column(name, pa.array(column))
        rows.append(batch)
    every = pa.chunked_array([chunk for part in lists for chunk in part.chunks], pa.list_(pa.uint64()))
    # With one batch, its sets are computed already.
    hashed = hashed.take(first_rows) if hashed and len(rows) == 1 else sets(of_lists(every))
    return pa.concat_tables(rows) if rows else ROWS.empty_table(), hashed, every


def _batches(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows with a column `file`, taken from the schema of each piece, in batches of about 2 · GROUP_BYTES."""
    waiting, size = list[pa.Table](), 0
    for rows in pieces:
        file = pa.array([rows.schema.metadata[b"file"].decode()] * len(rows), pa.string())
        waiting.append(rows.replace_schema_metadata().append_column("file", file))
        size += rows.nbytes
        if size > 2 * GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _preferred(table: pa.Table, *, drawn_by_id: bool) -> np.ndarray:
    """Return the indices of the rows of `table` in the order in which they are preferred as the row that stays.

    The order is by split (an earlier dataset first), then by the number of elements, the largest first, then by content, by
    position (`high`, `low`), and by place in the source.
    """
    source_order = np.lexsort((table["row"].to_numpy(), table["file"].to_numpy(zero_copy_only=False).astype(str)))
    source_rank = np.empty(len(table), np.int64)
    source_rank[source_order] = np.arange(len(table))
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    splits = table["split"].to_pylist()
    split_rank = np.array([-(split == EARLIER) if drawn_by_id else precedence(split) for split in splits])
    content, elements = table["content"].to_numpy(), table["elements"].to_numpy()
    return np.lexsort((source_rank, low, high, content, -elements, split_rank))  # the last key decides first


def _largest(table: pa.Table, kept_rows: np.ndarray) -> tuple[Cluster, ...]:
    """Return the clusters with the most rows. `kept_rows` has the index of the kept row for each dropped one."""
    rows, repeats = np.unique(kept_rows, return_counts=True)
    largest = np.lexsort((rows, -repeats))[:MAX_LISTED_CLUSTERS]
    rows_named = table.select(["id", "file", "row"]).take(pa.array(rows[largest])).to_pylist()
    return tuple(Cluster(int(n) + 1, **row) for n, row in zip(repeats[largest], rows_named, strict=True))


# The steps of the search: bands in ranges of values, links, groups of linked rows, repeats.

# An LSH band of a row: the last 32 bits of its value, and the 48-bit number of the row (its node). It is small,
# because many are stored on disk. In one range, some rows agree only in these 32 bits (one in hundreds). They are
# compared and found to differ.
ENTRY = np.dtype([("value", "u4"), ("node", "u4"), ("high", "u2")])
# A row of a sketch, and the number of the group in which it is compared.
PLACED = np.dtype([("place", "u4"), ("group", "u4")])
# Bytes of bands that are compared at a time, and the maximum number of ranges. Larger ranges are read several times.
RANGE_BYTES, MOST_RANGES = 16 << 20, 1024
# Bytes of shingles that are compared at a time. Linked rows stay in one group, even if they have more.
GROUP_BYTES = 16 << 20


class Plan(NamedTuple):
    """The plan of a search in some sketches.

    * `edges`: the first band value of each range but the first, `uint64[ranges - 1]`.
    * `numbers`: the number of each sketch, by its file and first row.
    * `firsts`: the node of each sketch's first row, `uint64[sketches]`. Nodes number the rows of all sketches.
    * `max_rows`: the number of rows in a group, unless links connect more.
    """

    edges: np.ndarray
    numbers: Mapping[tuple[str, int], int]
    firsts: np.ndarray
    max_rows: int

    def number(self, sketch: Sketch) -> int:
        """Return the number of a sketch."""
        return self.numbers[sketch.file, sketch.first_row]

    def cut(self, sketch: Sketch) -> Iterator[tuple[int, bytes]]:
        """Yield (number of a range, bytes of `ENTRY[n]`) for each range in which a sketch has bands."""
        values, places = sketch.entries()
        entries = np.empty(len(values), ENTRY)
        nodes = places.astype(np.uint64) + self.firsts[self.number(sketch)]
        entries["value"], entries["node"], entries["high"] = values, nodes, nodes >> np.uint64(32)
        data, bounds = entries.tobytes(), np.searchsorted(values, self.edges) * ENTRY.itemsize
        for number, (begin, end) in enumerate(itertools.pairwise([0, *bounds.tolist(), len(data)])):
            if begin < end:
                yield number, data[begin:end]


@dataclasses.dataclass(frozen=True)
class Search:
    """The settings that decide which rows repeat another. `drawn_by_id`: splits are drawn from ids."""

    bands: Bands
    threshold: float
    drawn_by_id: bool

    @staticmethod
    def plan(sketches: Sequence[Sketch], *, range_bytes: int = RANGE_BYTES, group_bytes: int = GROUP_BYTES) -> Plan:
        """Return the plan of a search in these sketches, whose bytes are not needed."""
        ordered = sorted(sketches, key=lambda sketch: (sketch.file, sketch.first_row))
        numbers = {(sketch.file, sketch.first_row): number for number, sketch in enumerate(ordered)}
        firsts = np.cumsum([0, *(sketch.rows for sketch in ordered)], dtype=np.uint64)[:-1]
        range_count = -(-sum(sketch.bands for sketch in sketches) * ENTRY.itemsize // range_bytes)
        range_count = min(max(1, range_count), MOST_RANGES)
        # Band values are hashes of 64 bits, so equal ranges hold about equally many.
        edges = np.array([(number << 64) // range_count for number in range(1, range_count)], np.uint64)
        rows, size = sum(sketch.rows for sketch in sketches), sum(sketch.size for sketch in sketches)
        return Plan(edges, numbers, firsts, max_rows=max(2, group_bytes * rows // max(1, size)))

    def find(self, pieces: Iterable[pa.Table]) -> Repeats:
        """Return the repeats among rows (ROWS). The schema of each of `pieces` names its file (`Sketch.rows_of`).

        The kept row of a cluster is the one with the most different shingles. Ties are resolved by a digest of the
        shingles, then by the position, then by the place in the source. If splits are the source's own (not `drawn_by_id`),
        the split comes first: rows of evaluation splits are preferred (`precedence`). A row of an earlier dataset is
        preferred to any other and never dropped.

        A row with the id of the kept row is no repeat, unless the kept row is an earlier one: it is the same example,
        or another answer.
        """
        table, hashed, shingles = _different(pieces)
        if len(table) < 2:
            return none()
        table = table.take(pa.array(_preferred(table, drawn_by_id=self.drawn_by_id)))
        # Rows are ordered by preference now, so the first row of a cluster is the kept one.
        _, first_rows, of = np.unique(table["content"].to_numpy(), return_index=True, return_inverse=True)
        ordered = np.argsort(first_rows)  # contents in order of their first rows
        of, first_rows = np.argsort(ordered)[of], first_rows[ordered]
        numbers = table["number"].to_numpy()[first_rows]
        shingles, hashed = of_lists(shingles.take(pa.array(numbers))), hashed.take(numbers)
        first = first_rows[clustered(shingles, hashed, bands=self.bands, threshold=self.threshold)[of]]
        id, split = (table[name].to_numpy(zero_copy_only=False) for name in ("id", "split"))
        is_repeat = (first != np.arange(len(first))) & ((id[first] != id) | (split[first] == EARLIER))
        repeated = np.flatnonzero(is_repeat & (split != EARLIER))
        kept_rows = first[repeated]
        dropped, instead = table.take(pa.array(repeated)), table.take(pa.array(kept_rows))
        similarities = similarity(hashed, np.stack([of[kept_rows], of[repeated]], axis=1))
        columns = [dropped[name] for name in ("split", "high", "low", "file", "row")]
        columns += [instead[name] for name in ("file", "row", "id")]
        rows = pa.table([*columns, pa.array(similarities)], schema=DROPPED)
        return Repeats(
            rows.sort_by([(name, "ascending") for name in ("split", "high", "low", "file", "row")]),
            len(np.unique(kept_rows)),
            int(((split[repeated] != split[kept_rows]) & (split[kept_rows] != EARLIER)).sum()),
            _largest(table, kept_rows),
        )


def of_settings(settings: Settings) -> Search | None:
    """Return the search that the settings request, or None."""
    if settings.dedup != "near":
        return None
    bands = sketches.choose_bands(settings.near_hashes, settings.near_jaccard)
    return Search(bands, settings.near_jaccard, drawn_by_id=settings.drawn_by_id)


def links(
    parts: Callable[[], Iterable[np.ndarray]], *, size: int, range_bytes: int = RANGE_BYTES
) -> Iterator[np.ndarray]:
    """Yield links between rows that share a band value, `uint64[links, 2]`. `size` is the bytes of all bands.

    `parts` yields the bands, `ENTRY[n]`. If they exceed `range_bytes`, `parts` is called several times, each time for
    another part of the values. Beyond twice that size, links are yielded early, and one row of each value stays in
    memory to be linked with later rows.
    """
    times = max(1, size // range_bytes)
    for number in range(times):
        waiting, waiting_bytes, max_bytes = list[np.ndarray](), 0, 2 * range_bytes
        for part in parts():
            waiting.append(part if times == 1 else part[part["value"] % times == number])
            waiting_bytes += waiting[-1].nbytes
            if waiting_bytes > max_bytes:
                linked, representatives = _linked(np.concatenate(waiting))
                waiting, waiting_bytes, max_bytes = (
                    [representatives],
                    representatives.nbytes,
                    max(max_bytes, 2 * representatives.nbytes),
                )
                yield linked
        if waiting:
            yield _linked(np.concatenate(waiting))[0]


def _linked(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the links between rows that share a value, and one entry of each value."""
    values = np.ascontiguousarray(entries["value"])
    order = np.argsort(values)
    values = values[order]
    begins = run_starts(values)
    representatives, sizes = entries[order[begins]], np.diff(begins, append=len(values))
    shared = order[np.repeat(sizes > 1, sizes)]  # few, because most values occur in one row
    nodes = entries["node"][shared] | entries["high"][shared].astype(np.uint64) << np.uint64(32)
    values = entries["value"][shared]
    begins = run_starts(values)
    ends = np.stack([nodes, np.repeat(nodes[begins], np.diff(begins, append=len(nodes)))], axis=1)
    return components.stars(ends[ends[:, 0] != ends[:, 1]]), representatives


def grouped(links: Iterable[np.ndarray], *, plan: Plan, folder: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (sketch number, PLACED[n]) for the linked rows of each sketch. Rows that links connect are in one group.

    A sketch may be yielded several times. A group has about `plan.most` rows, or one larger component. Data that
    exceeds memory is in files in `folder`.
    """
    with atomic_files.temporary_folder(folder, name="groups") as scratch_folder:
        placed = SortedPairs(Path(scratch_folder) / "rows")
        for number, nodes in components.grouped(
            components.components(links, folder=scratch_folder), max_nodes=plan.max_rows
        ):
            placed.add(np.stack([nodes, np.full(len(nodes), number, np.uint64)], axis=1))
        for nodes, groups in (part.T for part in placed.all()):
            rows = np.empty(len(nodes), PLACED)
            numbers = np.searchsorted(plan.firsts, nodes, side="right") - 1
            rows["place"], rows["group"] = nodes - plan.firsts[numbers], groups
            begins = run_starts(numbers)
            yield from zip(numbers[begins].tolist(), np.split(rows, begins[1:]), strict=True)
