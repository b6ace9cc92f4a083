"""Search for near-duplicates in steps that can be spread: pairs that share a band, clusters of similar rows, rows to drop."""

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
from t5prep.preparation.near_duplicates import sketches as minhash
from t5prep.preparation.near_duplicates.components import labels
from t5prep.preparation.near_duplicates.sketches import ROWS, Bands, Shingles, Sketch, mix, of_lists
from t5prep.preparation.sorted_pairs import SortedPairs

# In a band that more rows share than this, each is compared with this many next to it: the work stays linear where a
# whole corpus is one template. Rows of one cluster share many bands, so that few of its pairs have to be compared.
WINDOW = 32
# Elements that are looked up at a time.
_CHUNK = 1 << 20


class Sets(NamedTuple):
    """Sets of shingles: `keys` int64[total], sorted, is set · `width` + element; those of set i lie from `begins[i]` on.

    `known` are the hashes that elements stand for, uint64[width].
    """

    keys: np.ndarray
    begins: np.ndarray
    width: int
    known: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Return how many elements each set has, `int64[sets]`."""
        return np.diff(self.begins)

    def take(self, order: np.ndarray) -> "Sets":
        """Return the sets with these numbers, in their order."""
        sizes = self.sizes[order]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        owner = np.repeat(np.arange(len(order)), sizes)
        indices = np.arange(begins[-1]) - begins[owner] + self.begins[order][owner]
        return Sets(self.keys[indices] + (owner - order[owner]) * self.width, begins, self.width, self.known)

    def contents(self) -> np.ndarray:
        """Return a digest of each set, `uint64[sets]`: equal for equal sets. Every set must have an element."""
        return np.add.reduceat(mix(self.known[self.keys % self.width]), self.begins[:-1])


def sets(shingles: Shingles) -> Sets:
    """Return the set of shingles of each text."""
    hashes, elements = np.unique(shingles.hashes, return_inverse=True)
    width = max(1, len(hashes))
    owner = np.repeat(np.arange(len(shingles.begins) - 1), np.diff(shingles.begins))
    keys = np.sort(owner * width + elements)
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return Sets(keys, np.searchsorted(keys, np.arange(len(shingles.begins)) * width), width, hashes)


def similarity(sets: Sets, pairs: np.ndarray) -> np.ndarray:
    """Return the Jaccard similarity of each pair of sets, `float64[pairs]`: shared elements over all elements.

    `pairs` are numbers of sets, `int64[pairs, 2]`. Both of a pair must have an element.
    """
    sizes = sets.sizes
    swap = sizes[pairs[:, 0]] > sizes[pairs[:, 1]]
    small = np.where(swap, pairs[:, 1], pairs[:, 0])
    large = np.where(swap, pairs[:, 0], pairs[:, 1])
    shared = np.zeros(len(pairs), np.int64)
    ends = np.cumsum(sizes[small])
    begin = 0
    while begin < len(pairs):
        elements_before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, elements_before + _CHUNK, side="right")))
        shared[begin:end] = _shared(sets, small[begin:end], large[begin:end])
        begin = end
    return shared / (sizes[small] + sizes[large] - shared)


def _shared(sets: Sets, small: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Return how many elements each pair of sets has in common, `int64[pairs]`."""
    sizes = sets.sizes[small]
    pair = np.repeat(np.arange(len(small)), sizes)
    first = np.cumsum(sizes) - sizes
    indices = np.arange(len(pair)) - first[pair] + sets.begins[small][pair]
    sought = sets.keys[indices] - small[pair] * sets.width + large[pair] * sets.width
    match_indices = np.minimum(np.searchsorted(sets.keys, sought), len(sets.keys) - 1)
    return np.bincount(pair[sets.keys[match_indices] == sought], minlength=len(small))


def clustered(shingles: Shingles, sets: Sets, *, bands: Bands, threshold: float) -> np.ndarray:
    """Return for each text the first text of its cluster, `int64[texts]`; `sets` are the sets of its shingles.

    Two texts are linked when they share a band and their sets of shingles have at least the threshold's Jaccard
    similarity; clusters are the connected components. Texts come in an order of their own content, so that the same
    texts make the same clusters.
    """
    parent = np.arange(len(sets.sizes))
    if len(parent) < 2:
        return parent
    values = sketches.band_values(sketches.signatures(shingles, hashes=bands.bands * bands.rows), bands=bands)
    linked = refused = np.zeros((0, 2), np.int64)
    for pairs in _passes(sets.contents(), values):
        pairs = np.unique(pairs[parent[pairs[:, 0]] != parent[pairs[:, 1]]], axis=0)
        pairs = pairs[~np.isin(_codes(pairs, len(parent)), _codes(refused, len(parent)))]
        is_similar = _are_similar(sets, pairs, threshold)
        refused = np.concatenate([refused, pairs[~is_similar]])
        linked = np.concatenate([linked, pairs[is_similar]])
        parent = labels(linked, len(parent))
    return parent


def _passes(digests: np.ndarray, values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs of texts to compare: of equal content first, then neighbours in a band, nearest first.

    Of texts with equal content only the first goes on to the bands.
    """
    _, first, of = np.unique(digests, return_index=True, return_inverse=True)
    yield np.stack([first[of], np.arange(len(digests))], axis=1)
    alone = np.sort(first)
    order = np.argsort(values[alone], axis=0, kind="stable")  # in each band by value, then in order of texts
    ordered = np.take_along_axis(values[alone], order, axis=0)
    members = alone[order]
    for distance in range(1, min(WINDOW, len(alone) - 1) + 1):
        is_equal = ordered[distance:] == ordered[:-distance]
        if not is_equal.any():
            return
        yield np.stack([members[:-distance][is_equal], members[distance:][is_equal]], axis=1)


def _codes(pairs: np.ndarray, texts: int) -> np.ndarray:
    return pairs[:, 0] * texts + pairs[:, 1]


def _are_similar(sets: Sets, pairs: np.ndarray, threshold: float) -> np.ndarray:
    """Return which pairs have at least the threshold's similarity; sizes alone rule many out."""
    small, large = np.sort(sets.sizes[pairs], axis=1).T
    is_similar = small >= threshold * large
    is_similar[is_similar] = similarity(sets, pairs[is_similar]) >= threshold
    return is_similar


# Choose the rows to drop: each cluster keeps one row, by a rule that does not depend on the order of the rows.

# One dropped row: its split, position and place, and the row that is kept instead of it.
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
# Instead of a split: a row of an earlier dataset, which repeats nothing here and is kept before all others.
EARLIER = ""
# Clusters that are named, the largest first.
MAX_LISTED_CLUSTERS = 10


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Rows to drop (DROPPED) and what was counted: clusters, rows in another split than the kept one, the largest.

    The rows are sorted by split and position; they are in `dropped`, or in the file at `path`.
    """

    dropped: pa.Table
    clusters: int = 0
    across_splits: int = 0
    largest: tuple[Cluster, ...] = ()
    path: str = ""

    def spooled(self, path: Path) -> "Repeats":
        """Write the rows to a file that need not outlive the run, and return the repeats that read them there."""
        with atomic_files.scratch(path) as temporary, pa.ipc.new_stream(str(temporary), DROPPED) as writer:
            writer.write_table(self.dropped)
        return dataclasses.replace(self, dropped=DROPPED.empty_table(), path=str(path))

    def read(self) -> pa.Table:
        """Return the rows."""
        if not self.path:
            return self.dropped
        with pa.memory_map(self.path) as file:
            return pa.ipc.open_stream(file).read_all()

    def cut(self, split: str, shards: int) -> Iterator[tuple[int, "Repeats"]]:
        """Yield the number of each shard of a split that has rows to drop, and these, without the counts."""
        rows = self.read()
        rows = rows.filter(pc.equal(rows["split"], split))
        of = np.searchsorted(_inner_edges(shards), rows["high"].to_numpy(), side="right")
        begins = np.flatnonzero(np.append(True, of[1:] != of[:-1])[: len(of)])
        for begin, size in zip(begins.tolist(), np.diff(begins, append=len(of)).tolist(), strict=True):
            yield int(of[begin]), Repeats(rows.slice(begin, size))

    def slice(self, split: str, begin: int, end: int) -> "Repeats":
        """Return those of a split whose positions are in a range, without the counts. The table must be sorted."""
        high = self.dropped["high"].to_numpy()
        is_in_range = (self.dropped["split"].to_numpy(zero_copy_only=False) == split) & (high >= np.uint64(begin))
        is_in_range &= high <= np.uint64(end - 1)
        return Repeats(self.dropped.filter(pa.array(is_in_range)))

    def merge(self, other: "Repeats") -> "Repeats":
        """Return the counts of both together, without their rows."""
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
    """Return where each shard of a split begins but the first."""
    return np.array(placement.shard_edges(shards)[1:-1], np.uint64)


def none() -> Repeats:
    """Return no repeats."""
    return Repeats(DROPPED.empty_table())


def concatenate(parts: Iterable[Repeats]) -> Repeats:
    """Return the rows of several parts together, without their counts."""
    return Repeats(pa.concat_tables([DROPPED.empty_table(), *(part.dropped for part in parts)]))


def precedence(split: str) -> int:
    """Return which split keeps a text that two have, the smallest first: test, validation, any other, train.

    >>> sorted(["train", "dev", "validation", "test"], key=precedence)
    ['test', 'validation', 'dev', 'train']
    """
    return {EARLIER: -1, "test": 0, "validation": 1, "train": 3}.get(split, 2)


def _different(pieces: Iterable[pa.Table]) -> tuple[pa.Table, Sets, pa.ChunkedArray]:
    """Return rows without shingles, the different sets of shingles, and the lists of these.

    The rows have columns of their own: `file`, the digest of their set, `content`, how many elements it has, `elements`, and its
    `number` among the different ones.
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
    hashed = hashed.take(first_rows) if hashed and len(rows) == 1 else sets(of_lists(every))
    return pa.concat_tables(rows) if rows else ROWS.empty_table(), hashed, every


def _batches(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows with the name of their file, of which the schema of each piece has it; some GROUP_BYTES at a time."""
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
    """Return the numbers of rows in the order in which they would be kept."""
    source_order = np.lexsort((table["row"].to_numpy(), table["file"].to_numpy(zero_copy_only=False).astype(str)))
    tie = np.empty(len(table), np.int64)
    tie[source_order] = np.arange(len(table))
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    splits = table["split"].to_pylist()
    rank = np.array([-(split == EARLIER) if drawn_by_id else precedence(split) for split in splits])
    content, elements = table["content"].to_numpy(), table["elements"].to_numpy()
    return np.lexsort((tie, low, high, content, -elements, rank))


def _largest(table: pa.Table, kept_rows: np.ndarray) -> tuple[Cluster, ...]:
    """Return the clusters with the most rows, given the kept row's number for each dropped one."""
    rows, repeats = np.unique(kept_rows, return_counts=True)
    largest = np.lexsort((rows, -repeats))[:MAX_LISTED_CLUSTERS]
    rows_named = table.select(["id", "file", "row"]).take(pa.array(rows[largest])).to_pylist()
    return tuple(Cluster(int(n) + 1, **row) for n, row in zip(repeats[largest], rows_named, strict=True))


# Search for near-duplicates in steps that can be spread: bands in ranges of values, links, groups of linked rows, repeats.

# One LSH band of one row: the last 32 bits of its value, and the node that names the row, 48 bits. Many lie on the disk. Rows of one
# range that agree in these bits alone, one of some hundreds, are compared too, and found to be different.
ENTRY = np.dtype([("value", "u4"), ("node", "u4"), ("high", "u2")])
# A row of a sketch, and the number of the group of rows that it is compared with.
PLACED = np.dtype([("place", "u4"), ("group", "u4")])
# Bytes of bands that are compared at a time, and ranges that they are cut into at most: larger ones are read several times.
RANGE_BYTES, MOST_RANGES = 16 << 20, 1024
# Bytes of shingles that are compared at a time; rows that are linked stay together, however many they are.
GROUP_BYTES = 16 << 20


class Plan(NamedTuple):
    """Give the cuts of the bands (the first value of each range but the first), and each sketch's number, by file and first row.

    All rows are numbered, `firsts` are the first ones of sketches: these are the nodes. A group of rows that are compared with
    each other has `most` rows, or more where links connect them.
    """

    edges: np.ndarray
    numbers: Mapping[tuple[str, int], int]
    firsts: np.ndarray
    most: int

    def number(self, sketch: Sketch) -> int:
        """Return the number of a sketch."""
        return self.numbers[sketch.file, sketch.first_row]

    def cut(self, sketch: Sketch) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each range that a sketch has bands in, and these bands, the bytes of `ENTRY[n]`."""
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
    """The settings that decide which rows repeat another: `drawn` where splits are drawn from ids."""

    bands: Bands
    threshold: float
    drawn: bool

    @staticmethod
    def plan(sketches: Sequence[Sketch], *, range_bytes: int = RANGE_BYTES, group_bytes: int = GROUP_BYTES) -> Plan:
        """Return the plan of a search in these sketches; their bytes are not needed."""
        ordered = sorted(sketches, key=lambda sketch: (sketch.file, sketch.first_row))
        numbers = {(sketch.file, sketch.first_row): number for number, sketch in enumerate(ordered)}
        firsts = np.cumsum([0, *(sketch.rows for sketch in ordered)], dtype=np.uint64)[:-1]
        count = -(-sum(sketch.bands for sketch in sketches) * ENTRY.itemsize // range_bytes)
        count = min(max(1, count), MOST_RANGES)
        edges = np.array([(number << 64) // count for number in range(1, count)], np.uint64)
        rows, size = sum(sketch.rows for sketch in sketches), sum(sketch.size for sketch in sketches)
        return Plan(edges, numbers, firsts, max(2, group_bytes * rows // max(1, size)))

    def find(self, pieces: Iterable[pa.Table]) -> Repeats:
        """Return the repeats among rows (ROWS), each of `pieces` with the name of its file in its schema (Sketch.rows_of).

        Kept is the row with the most different shingles, of those the first by a digest of them, then by the id's digest,
        then by place. Where splits are not `drawn` from ids but are the source's own, evaluation keeps a row before all
        that, and a row of an earlier dataset is kept before any other and never dropped. Rows with the id of the kept one
        are not repeats here, unless that is an earlier one: they are the same example, or its other answers.

        Of rows with the same shingles these are held once, however many rows there are.
        """
        table, hashed, shingles = _different(pieces)
        if len(table) < 2:
            return none()
        table = table.take(pa.array(_preferred(table, drawn_by_id=self.drawn)))
        _, first_rows, of = np.unique(table["content"].to_numpy(), return_index=True, return_inverse=True)
        ordered = np.argsort(first_rows)  # contents, in order of the first row of each
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
    """Return the search that settings ask for, or None."""
    if settings.dedup != "near":
        return None
    bands = minhash.choose_bands(settings.near_hashes, settings.near_jaccard)
    return Search(bands, settings.near_jaccard, drawn=settings.drawn_by_id)


def links(
    parts: Callable[[], Iterable[np.ndarray]], *, size: int, range_bytes: int = RANGE_BYTES
) -> Iterator[np.ndarray]:
    """Yield links between the rows of bands (`ENTRY[n]`, `size` bytes in all) that share a value, `uint64[links, 2]`.

    Where they have more than `range_bytes`, `parts` is called several times, and each time some of the values are looked at. When
    twice as many bytes are held, their links are yielded, and one row of each value is kept to be linked with what follows.
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
    """Return links between rows that share a value, and one row of each value."""
    values = np.ascontiguousarray(entries["value"])
    order = np.argsort(values)
    values = values[order]
    first = np.append(True, values[1:] != values[:-1])[: len(values)]
    shared = order[~(first & np.append(first[1:], True)[: len(first)])]  # few: most values are of one row
    nodes = entries["node"][shared] | entries["high"][shared].astype(np.uint64) << np.uint64(32)
    values = entries["value"][shared]
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    ends = np.stack([nodes, np.repeat(nodes[begins], np.diff(begins, append=len(nodes)))], axis=1)
    return components.stars(ends[ends[:, 0] != ends[:, 1]]), entries[order[first]]


def grouped(links: Iterable[np.ndarray], *, plan: Plan, folder: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yield for each sketch with linked rows its number and PLACED[n]: rows that links connect are in one group.

    A sketch may come several times. A group has about `plan.most` rows, or one component. What does not fit into memory waits in
    the folder.
    """
    with atomic_files.temporary_folder(folder, name="groups") as scratch_folder:
        placed = SortedPairs(Path(scratch_folder) / "rows")
        for number, nodes in components.grouped(
            components.components(links, folder=scratch_folder), max_nodes=plan.most
        ):
            placed.add(np.stack([nodes, np.full(len(nodes), number, np.uint64)], axis=1))
        for nodes, groups in (part.T for part in placed.all()):
            of = np.empty(len(nodes), PLACED)
            numbers = np.searchsorted(plan.firsts, nodes, side="right") - 1
            of["place"], of["group"] = nodes - plan.firsts[numbers], groups
            begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
            yield from zip(numbers[begins].tolist(), np.split(of, begins[1:]), strict=True)
