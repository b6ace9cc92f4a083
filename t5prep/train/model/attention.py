"""Compute multi-head attention for the whole batch or, over long texts, a few rows at a time.

Of few rows only their scores exist at once. The backward pass computes the scores again (Dao et al. 2022, section 3.1), so
nothing of their size is kept for it. And the float32 scores of a few rows fit into the fast memory of a TPU's cores; those
of all rows must be packed and moved to HBM and back.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from t5prep.train.model.layers import Dropout, array_of, column_sums, rms_norm, row_sums, unfilled
from t5prep.train.model.positions import Angles, Reach, rotate

LANES = 128  # numbers in a row of a TPU's register
# From this many scores of one row on, attention is computed for a few rows at a time (`attend_by_rows`).
MANY = 1 << 21


@dataclasses.dataclass(frozen=True)
class Heads:
    """The heads of one attention, and the order of the axes of its queries and of its keys and values.

    The order is [batch, length, heads, d_kv], or with positions last [batch, heads, d_kv, length]. Inside attention a
    TPU keeps positions last anyway. For texts that are as long as its registers, it computes them so from the first
    order. For shorter ones it would transpose each matrix, and the gradients of queries, keys and values.
    """

    number: int
    queries_last: bool = False
    keys_last: bool = False
    by_rows: bool = False

    @classmethod
    def of(cls, number: int, *, queries: int, keys: int) -> "Heads":
        """Return the heads for texts of these lengths."""
        if number * queries * keys >= MANY:
            return cls(number, by_rows=True)
        return cls(number, queries_last=queries < LANES, keys_last=keys < LANES)

    def queries(self, x: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
        """Return x times a matrix, for each head.

        x: [batch, length, d_model]; matrix: [d_model, heads * d_kv]; bias: [heads * d_kv], added to the product.
        """
        return self._split(x, matrix, bias, last=self.queries_last)

    def keys(self, x: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
        """Return the keys or values of x, like `queries`."""
        return self._split(x, matrix, bias, last=self.keys_last)

    def join(self, attended: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        """Return all heads' values times a matrix, [heads * d_kv, d_model]: [batch, length, d_model]."""
        inner = matrix.shape[0]
        if self.queries_last:
            joined = tf.reshape(attended, [attended.shape[0], inner, attended.shape[3]])
            return tf.einsum("bol,oi->bli", joined, matrix)
        return tf.matmul(tf.reshape(attended, [attended.shape[0], attended.shape[1], inner]), matrix)

    def rotated(self, x: tf.Tensor, angles: Angles, *, queries: bool = False) -> tf.Tensor:
        """Return keys, or `queries`, with the halves of each vector rotated by `rotary_angles` of its position.

        The angles are of each position, [length, width / 2], or of each position of each row, [batch, length, width / 2].
        """
        cosines, sines = angles
        if self.queries_last if queries else self.keys_last:
            cosines, sines = (tf.linalg.matrix_transpose(one)[..., None, :, :] for one in (cosines, sines))
            return rotate(x, cosines, sines, axis=2)
        return rotate(x, cosines[..., None, :], sines[..., None, :], axis=3)

    def normed(self, x: tf.Tensor, scale: tf.Tensor, *, epsilon: float, queries: bool = False) -> tf.Tensor:
        """Return keys, or `queries`, with each vector divided by its root mean square and scaled: [d_kv]."""
        if self.queries_last if queries else self.keys_last:
            last = rms_norm(tf.linalg.matrix_transpose(x), scale, epsilon=epsilon)
            return tf.linalg.matrix_transpose(last)
        return rms_norm(x, scale, epsilon=epsilon)

    def for_queries(self, x: tf.Tensor) -> tf.Tensor:
        """Return keys of fewer heads, repeated for the heads of queries that share each of them (Ainslie et al. 2023)."""
        axis = 1 if self.keys_last else 2
        times = self.number // x.shape[axis]
        if times == 1:
            return x
        shape = [*x.shape[: axis + 1], times, *x.shape[axis + 1 :]]
        whole = tf.broadcast_to(tf.expand_dims(x, axis + 1), shape)
        return tf.reshape(whole, [*x.shape[:axis], self.number, *x.shape[axis + 1 :]])

    def shape_of_keys(self, batch: int, keys: int) -> list[int]:
        """Return the shape of one number for each key of each head, which broadcasts over the values.

        >>> Heads.of(8, queries=64, keys=64).shape_of_keys(2, 64), Heads.of(8, queries=64, keys=512).shape_of_keys(2, 512)
        ([2, 8, 1, 64], [2, 512, 8, 1])
        """
        return [batch, self.number, 1, keys] if self.keys_last else [batch, keys, self.number, 1]

    def beside_queries(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return a number for each query, [batch, heads, queries], in a shape that broadcasts over the queries."""
        return numbers[:, :, None, :] if self.queries_last else tf.transpose(numbers, [0, 2, 1])[..., None]

    def sum_of_queries(self, x: tf.Tensor) -> tf.Tensor:
        """Return the sum over d_kv of float32 numbers in the order of the queries: [batch, heads, queries]."""
        if self.queries_last:
            return column_sums(x)
        return tf.transpose(tf.reduce_sum(x, axis=-1), [0, 2, 1])

    def _split(self, x: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor | None, *, last: bool) -> tf.Tensor:
        batch, length, _ = x.shape
        width = matrix.shape[1] // self.number
        if last:
            product = tf.einsum("bli,io->bol", x, matrix)
            product = product if bias is None else product + bias[:, None]
            return tf.reshape(product, [batch, self.number, width, length])
        product = tf.matmul(x, matrix)
        product = product if bias is None else product + bias
        return tf.reshape(product, [batch, length, self.number, width])


MASKED = -1e9  # far below any score, and finite: a row with nothing to attend to has no NaN
# The forward pass takes as many rows at once as have this many scores: half of a TPU v5e's fast memory (128 MiB).
MOST = 1 << 24
# The backward pass takes this many rows a turn, one after the other, which share the small reads of a turn.
TURN = 2


def attend_by_rows(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *biases: tf.Tensor,
    mask: tf.Tensor,
    dropped: tf.Tensor | None,
    cap: float = 0.0,
) -> list[tf.Tensor]:
    """Compute the same as `attention.attend_together`, a few rows at a time, with [batch, length, heads, d_kv]."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        if dropped is not None:
            value *= dropped
        attended, highest, sums = _forward(query, key, value, biases, mask, cap)

        def gradient(upstream: tf.Tensor, *of_biases: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # As in `attend_together`, divide the upstream gradient and not the exponentials of the scores.
            wide = tf.cast(upstream, tf.float32) * _inverse(sums)
            common = tf.transpose(tf.reduce_sum(wide * tf.cast(attended, tf.float32), axis=-1), [0, 2, 1])
            drops = None if dropped is None else dropped[..., 0]
            loop = _Backward(biases, mask, tf.cast(wide, query.dtype), highest, common, drops, cap)
            sums_of_biases, (of_query, of_key, of_value) = loop.run(query, key, value, of_biases)
            return of_query, of_key, of_value, *sums_of_biases

        return [attended, *(tf.identity(bias) for bias in biases)], gradient

    return list(run(query, key, value, *biases))


def _forward(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, biases: Sequence[tf.Tensor], mask: tf.Tensor, cap: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return what `_attend` returns for all rows, computed for `MOST` scores at a time."""
    rows, scores_of_row = query.shape[0], query.shape[1] * key.shape[1] * query.shape[2]
    together = max(n for n in range(1, rows + 1) if rows % n == 0 and (n == 1 or n * scores_of_row <= MOST))
    if together == rows:
        return _attend(query, key, value, biases, mask, cap)
    queries, keys, values = (_blocks(x, together) for x in (query, key, value))
    masks = _blocks(mask, together) if mask.shape[0] > 1 else mask[None]

    def turn(n: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        own = _attend(queries[n], keys[n], values[n], biases, masks[n] if mask.shape[0] > 1 else mask, cap)
        return n + 1, *(array.write(n, x) for array, x in zip(arrays, own, strict=True))

    shape = [together, query.shape[2], query.shape[1]]
    small = [array_of(unfilled([rows // together, *shape], tf.float32)) for _ in range(2)]
    begin = (0, array_of(unfilled(queries.shape, queries.dtype)), *small)
    _, *arrays = tf.while_loop(lambda n, *_: n < rows // together, turn, begin, maximum_iterations=rows // together)
    attended, highest, sums = (array.stack() for array in arrays)
    return tf.reshape(attended, query.shape), *(tf.reshape(x, [rows, *shape[1:]]) for x in (highest, sums))


def _attend(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, biases: Sequence[tf.Tensor], mask: tf.Tensor, cap: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the attended values, and of each query's scores the highest and the sum of the exponentials."""
    own = _scores(query, key, biases, mask, cap)
    highest = tf.reduce_max(own, axis=-1)
    raised = tf.exp(own - highest[..., None])
    sums = row_sums(raised)
    attended = product("...hqk,...khd->...qhd", raised, value) * _inverse(sums)
    return tf.cast(attended, query.dtype), highest, sums


def _scores(query: tf.Tensor, key: tf.Tensor, biases: Sequence[tf.Tensor], mask: tf.Tensor, cap: float) -> tf.Tensor:
    """Return the scores, float32[..., heads, queries, keys]."""
    products = capped(product("...qhd,...khd->...hqk", query, key), cap)
    return tf.where(mask, products + biases[0] if biases else products, MASKED)


def _blocks(x: tf.Tensor, size: int) -> tf.Tensor:
    """Return x with its rows in blocks: [blocks, size, ...]."""
    return tf.reshape(x, [x.shape[0] // size, size, *x.shape[1:]])


def _inverse(sums: tf.Tensor) -> tf.Tensor:
    """Return 1 / sums, from [..., heads, queries] to [..., queries, heads, 1]."""
    return 1.0 / tf.linalg.matrix_transpose(sums)[..., None]


@dataclasses.dataclass(frozen=True)
class _Backward:
    """Compute the gradients of attention, `TURN` rows a turn.

    upstream: the gradient of the attended values, divided by the sums; highest, common: float32[rows, heads, queries],
    the highest score of each query, and what the softmax's gradient subtracts; dropped: [rows, keys, heads], or None.
    """

    biases: Sequence[tf.Tensor]
    mask: tf.Tensor
    upstream: tf.Tensor
    highest: tf.Tensor
    common: tf.Tensor
    dropped: tf.Tensor | None
    cap: float

    def run(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, of_biases: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return the gradients of the bias, added to `of_biases`, and of query, key and value. Values are dropped out."""
        rows = query.shape[0]
        size = TURN if rows % TURN == 0 and TURN * query.shape[1] * key.shape[1] * query.shape[2] <= MOST // 2 else 1
        alike = self.mask.shape[0] == 1  # one mask for all rows
        inputs = [self.highest, self.common, *([] if alike else [self.mask])]
        inputs = [_blocks(x, size) for x in (*inputs, *([] if self.dropped is None else [self.dropped]))]

        def turn(n: tf.Tensor, of_bias: list[tf.Tensor], arrays: list[tf.TensorArray]) -> tuple[Any, ...]:
            own = [x[n] for x in inputs]
            for i in range(size):
                highest, common, *more = (x[i] for x in own)
                mask = self.mask[0] if alike else more[0]
                row = n * size + i
                q, k, v, upstream = (x[row] for x in (query, key, value, self.upstream))
                of_scores, *own_gradients = self._row(q, k, v, upstream, highest, common, mask, *more[1 - alike :])
                arrays = [array.write(row, x) for array, x in zip(arrays, own_gradients, strict=True)]
                of_bias = [total + of_scores for total in of_bias]
            return n + 1, of_bias, arrays

        begin = (0, list(of_biases), [array_of(unfilled(x.shape, x.dtype)) for x in (query, key, value)])
        _, of_bias, arrays = tf.while_loop(lambda n, *_: n < rows // size, turn, begin, maximum_iterations=rows // size)
        return of_bias, [array.stack() for array in arrays]

    def _row(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        upstream: tf.Tensor,
        highest: tf.Tensor,
        common: tf.Tensor,
        mask: tf.Tensor,
        dropped: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, ...]:
        """Return the gradients of one row's scores, query, key and value; the arguments are of that row."""
        scores = _scores(query, key, self.biases, mask, self.cap)
        raised = tf.exp(scores - highest[..., None])
        of_scores = raised * (product("qhd,khd->hqk", upstream, value) - common[..., None])
        if self.cap:  # such models have no biases; where the mask forbids, the gradient is 0 already
            of_scores *= 1.0 - tf.square(tf.maximum(scores, -self.cap) / self.cap)
        of_key = tf.cast(product("hqk,qhd->khd", of_scores, query), query.dtype)
        of_query = tf.cast(product("hqk,khd->qhd", of_scores, key), query.dtype)
        of_value = tf.cast(product("hqk,qhd->khd", raised, upstream), query.dtype)
        if dropped is not None:
            of_value *= dropped[..., None]
        return of_scores, of_query, of_key, of_value


def product(equation: str, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return the einsum of two operands cast to float32.

    A TPU multiplies bfloat16 values and adds in float32 in any case, but for bfloat16 operands TensorFlow makes it
    round the result, and then store it.
    """
    return tf.einsum(equation, tf.cast(left, tf.float32), tf.cast(right, tf.float32))


def capped(scores: tf.Tensor, cap: float) -> tf.Tensor:
    """Return scores pressed between -cap and cap: cap * tanh(scores / cap) (Gemma 2, section 2); as they are for a cap of 0."""
    return cap * tf.tanh(scores / cap) if cap else scores


def attend(
    heads: Heads,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *,
    bias: tf.Tensor | None,
    mask: tf.Tensor,
    dropped: tf.Tensor | None = None,
    cap: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return softmax(query key + bias) value over the keys that the mask allows, in the order of axes of `heads`.

    query, key, value: of `heads.queries` and `heads.keys`; bias: float32[heads, queries, keys], or None; mask: bool, broadcastable to
    [batch, heads, queries, keys]; dropped: the dropout mask by which values are multiplied, in the shape of
    `heads.shape_of_keys`, or None; cap: `capped` scores, of attention without a bias. Float32 inside; the result has the
    queries' dtype.

    Return the bias too, as the next layer's input: then the gradients of all layers' biases are added up in one place.

    No tensor as large as the scores is divided: the division, like the sum in the softmax's gradient, is done on the result
    (Dao et al. 2022, appendix B.2). Only the exponentials of the scores are kept for the backward pass, and for long texts
    not even these.
    """
    biases = [] if bias is None else [bias]
    run = attend_by_rows if heads.by_rows else functools.partial(attend_together, heads)
    attended, *biases = run(query, key, value, *biases, mask=mask, dropped=dropped, cap=cap)
    return attended, biases[0] if biases else None


def attend_grouped(
    heads: Heads,
    x: tf.Tensor,
    source: tf.Tensor,
    matrices: Sequence[tf.Tensor],
    *,
    reach: Reach,
    scale: float,
    dropout: Dropout,
    site: int | tf.Tensor,
    bias: tf.Tensor | None = None,
    norms: Sequence[tf.Tensor] = (),
    epsilon: float = 0.0,
    cap: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return attention of x over a source, as `heads.join` takes it, and the bias; a head of keys may serve several of queries.

    matrices: of queries, keys and values; norms: the scales of queries and of keys, if these are normed. Both are rotated where
    `reach` has angles. scale: by which scores are multiplied; site: of the dropout of values; bias, cap: of `attend`.
    """
    query = heads.queries(x, matrices[0])
    of_keys = dataclasses.replace(heads, number=heads.number * matrices[1].shape[1] // matrices[0].shape[1])
    key, value = (of_keys.keys(source, matrix) for matrix in matrices[1:])
    if norms:
        query = heads.normed(query, norms[0], epsilon=epsilon, queries=True)
        key = heads.normed(key, norms[1], epsilon=epsilon)
    if reach.of_queries is not None and reach.of_keys is not None:
        query, key = heads.rotated(query, reach.of_queries, queries=True), heads.rotated(key, reach.of_keys)
    query = query if scale == 1.0 else query * tf.constant(scale, x.dtype)
    # One mask for all queries drops the probabilities of a key. Dropping its value is the same, with a smaller mask.
    dropped = dropout.mask(heads.shape_of_keys(x.shape[0], source.shape[1]), x.dtype, site=site)
    key, value = heads.for_queries(key), heads.for_queries(value)
    return attend(heads, query, key, value, bias=bias, mask=reach.mask, dropped=dropped, cap=cap)


def attend_together(
    heads: Heads,
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *biases: tf.Tensor,
    mask: tf.Tensor,
    dropped: tf.Tensor | None,
    cap: float = 0.0,
) -> list[tf.Tensor]:
    """Compute attention for all rows of the batch at once; return its result, in the queries' order, and any bias.

    Here, a bias may also be of each row: [batch, heads, queries, keys].
    """
    q, k = ("bhdq" if heads.queries_last else "bqhd"), ("bhdk" if heads.keys_last else "bkhd")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor) -> tuple[list[tf.Tensor], Any]:
        dtype = query.dtype
        if dropped is not None:
            value *= dropped
        scores = capped(product(f"{q},{k}->bhqk", query, key), cap)
        scores = tf.where(mask, scores + tf.cast(biases[0], tf.float32) if biases else scores, MASKED)
        raised = tf.cast(tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True)), dtype)
        sums = row_sums(tf.cast(raised, tf.float32))
        scale = heads.beside_queries(1.0 / sums)
        attended = tf.cast(product(f"bhqk,{k}->{q}", raised, value) * scale, dtype)

        def gradient(upstream: tf.Tensor, *of_biases: tf.Tensor) -> tuple[tf.Tensor, ...]:
            scaled = tf.cast(upstream, tf.float32) * scale
            common = heads.sum_of_queries(scaled * tf.cast(attended, tf.float32))[..., None]
            scaled = tf.cast(scaled, dtype)
            of_raised = product(f"{q},{k}->bhqk", scaled, value)
            of_scores = tf.cast(raised, tf.float32) * (of_raised - common)
            if cap:  # the products are computed again: of them only the exponentials of the capped ones are kept
                of_scores *= 1.0 - tf.square(tf.tanh(product(f"{q},{k}->bhqk", query, key) / cap))
            of_scores = tf.cast(of_scores, dtype)
            of_value = tf.einsum(f"bhqk,{q}->{k}", raised, scaled)
            return (
                tf.einsum(f"bhqk,{k}->{q}", of_scores, key),
                tf.einsum(f"bhqk,{q}->{k}", of_scores, query),
                of_value if dropped is None else of_value * dropped,
                # Add the rows of the batch one by one: a TPU takes three times as long for a sum over the first axis.
                *(
                    total + tf.cast(of_scores, total.dtype)
                    if total.shape.rank == 4
                    else tf.add_n([total, *(tf.cast(row, tf.float32) for row in tf.unstack(of_scores))])
                    for total in of_biases
                ),
            )

        return [attended, *(tf.identity(bias) for bias in biases)], gradient

    return list(run(query, key, value, *biases))
