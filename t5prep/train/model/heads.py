"""Project vectors to the heads of attention and back, with the axes in the order that is fastest on a TPU."""

import dataclasses

import tensorflow as tf

from t5prep.train.model.sums import ONES

LANES = 128  # numbers in a row of a TPU's register
# From this many scores of one row on, attention is computed for a few rows at a time (`row_attention`).
MANY = 1 << 21


@dataclasses.dataclass(frozen=True)
class Heads:
    """Describe the heads of one attention, and the order of the axes of its queries and of its keys and values.

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
        """Return the sum over d_kv of float32 numbers in the order of the queries: [batch, heads, queries].

        With positions last a product with ones is faster than a sum (see `sums`).
        """
        if self.queries_last:
            return tf.einsum("bhdq,dn->bhqn", x, tf.ones([x.shape[2], ONES], x.dtype))[..., 0]
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
