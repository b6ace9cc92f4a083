"""Compute multi-head attention: one function for all families of models and all devices.

Windows are masks, and no kernel is fused: see docs/decisions/004-compute-attention-plainly.md,
005-leave-out-cudnn-attention.md and 009-mask-attention-windows.md for the figures.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from t5prep.training.model.layers import Dropout, product, project, rms_norm
from t5prep.training.model.positions import AttentionSpan, rotate

MASKED = -1e9  # far below any score, and finite: a row with nothing to attend to has no NaN


def split_heads(x: tf.Tensor, matrix: tf.Tensor, heads: int, bias: tf.Tensor | None = None) -> tf.Tensor:
    """Return x times a matrix, split into heads: [batch, length, heads, d_kv].

    x: [batch, length, d_model]; matrix: [d_model, heads * d_kv]; bias: [heads * d_kv], added to the product.
    """
    projected = project(x, matrix)
    projected = projected if bias is None else projected + bias
    return tf.reshape(projected, [*projected.shape[:2], heads, projected.shape[2] // heads])


def repeat_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """Return keys or values, [batch, length, key heads, width], repeated to `heads` heads (Ainslie et al. 2023)."""
    batch, length, key_heads, width = x.shape
    if key_heads == heads:
        return x
    repeated = tf.broadcast_to(x[:, :, :, None], [batch, length, key_heads, heads // key_heads, width])
    return tf.reshape(repeated, [batch, length, heads, width])


def rotate_heads(x: tf.Tensor, angles: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return x, queries or keys of `split_heads`, with the halves of each vector rotated by the angles of its position.

    angles: cosines and sines of `positions.rotary_angles`, [length, width / 2] each, or [batch, length, width / 2] if positions
    differ between rows.
    """
    cosines, sines = (numbers[..., None, :] for numbers in angles)
    return rotate(x, cosines, sines, axis=3)


def soft_cap(scores: tf.Tensor, cap: float) -> tf.Tensor:
    """Return cap * tanh(scores / cap), which is between -cap and cap (Gemma 2, section 2); unchanged scores for a cap of 0."""
    return cap * tf.tanh(scores / cap) if cap else scores


def attend(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *,
    bias: tf.Tensor | None = None,
    mask: tf.Tensor,
    dropped: tf.Tensor | None = None,
    cap: float = 0.0,
) -> tf.Tensor:
    """Return softmax(query key + bias) value over the keys that the mask allows: [batch, queries, heads, d_kv].

    Args:
        query: Queries of `split_heads`.
        key: Keys of `split_heads`, with as many heads as the queries.
        value: Values of `split_heads`, with as many heads as the queries.
        bias: float32[heads, queries, keys], or [batch, heads, queries, keys] in the queries' dtype.
        mask: bool, broadcastable to [batch, heads, queries, keys]; true where a query may attend to a key.
        dropped: A dropout mask, [batch, keys, heads, 1], by which values are multiplied.
        cap: The cap of `soft_cap`, for models without a bias; 0 for none.

    Products and softmax add up in float32. The scores between them, the probabilities and the result have the queries' dtype, as
    in `transformers` under autocast and in T5X. For bfloat16 this halves the bytes of the largest tensor
    (docs/decisions/003-round-scores-to-bfloat16.md). The backward pass stores the probabilities, and no other tensor of their
    size.
    """
    dtype = query.dtype
    if dropped is not None:
        value *= dropped

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(
        query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, *biases: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, ...]]]:
        scores = soft_cap(product("bqhd,bkhd->bhqk", query, key), cap)
        scores = tf.where(mask, scores + tf.cast(biases[0], tf.float32) if biases else scores, MASKED)
        shares = tf.cast(tf.nn.softmax(tf.cast(tf.cast(scores, dtype), tf.float32)), dtype)
        attended = tf.cast(product("bhqk,bkhd->bqhd", shares, value), dtype)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # The sum over keys of probabilities times their gradients equals the sum over d_kv of results times their gradients
            # (Dao et al. 2022, appendix B.2). So it needs no further tensor of the scores' size.
            total = tf.reduce_sum(tf.cast(upstream, tf.float32) * tf.cast(attended, tf.float32), axis=-1)
            share_gradient = product("bqhd,bkhd->bhqk", upstream, value)
            score_gradient = tf.cast(shares, tf.float32) * (share_gradient - tf.transpose(total, [0, 2, 1])[..., None])
            if cap:
                score_gradient *= 1.0 - tf.square(tf.tanh(product("bqhd,bkhd->bhqk", query, key) / cap))
            score_gradient = _rounded(score_gradient, dtype)
            return (
                tf.cast(product("bhqk,bkhd->bqhd", score_gradient, key), dtype),
                tf.cast(product("bhqk,bqhd->bkhd", score_gradient, query), dtype),
                tf.cast(product("bhqk,bqhd->bkhd", shares, upstream), dtype),
                *(_bias_gradient(score_gradient, bias) for bias in biases),
            )

        return attended, gradient

    return run(query, key, value, *([] if bias is None else [bias]))


def _bias_gradient(score_gradient: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    if bias.shape.rank == 3:  # one bias for all rows
        score_gradient = tf.reduce_sum(tf.cast(score_gradient, tf.float32), axis=0)
    return tf.cast(score_gradient, bias.dtype)


def _rounded(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return x in `dtype`, behind a barrier that makes XLA store it.

    Without the barrier XLA would compute the gradients of scores again for the sum that becomes the gradient of the bias. The
    barrier is an operation of XLA, so a bfloat16 program cannot run in TensorFlow itself.
    """
    return x if dtype == tf.float32 else xla.optimization_barrier(tf.cast(x, dtype))[0]


def multi_head_attention(
    x: tf.Tensor,
    source: tf.Tensor,
    matrices: Sequence[tf.Tensor],
    *,
    heads: int,
    span: AttentionSpan,
    scale: float,
    dropout: Dropout,
    dropout_site: int | tf.Tensor,
    biases: Sequence[tf.Tensor | None] = (None,) * 4,
    bias: tf.Tensor | Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    norms: Sequence[tf.Tensor] = (),
    epsilon: float = 0.0,
    cap: float = 0.0,
) -> tf.Tensor:
    """Return attention of x over `source`: [batch, queries, d_model].

    Args:
        x: [batch, queries, d_model], from which the queries are computed.
        source: [batch, keys, width], from which keys and values are computed.
        matrices: The matrices of queries, keys, values and output. Keys may have fewer heads, shared by those of queries.
        heads: The number of heads of queries.
        span: The mask, and the angles of rotation, if the model rotates queries and keys.
        scale: The factor of scores.
        dropout: The dropout of values.
        dropout_site: The dropout site of the values.
        biases: The biases of the four products; None for none.
        bias: The bias of scores, see `attend`, or a function of the scaled queries and the keys that returns it.
        norms: The scales of the norms of queries and of keys; empty if there are none.
        epsilon: The epsilon of these norms.
        cap: The soft cap of scores, see `attend`.
    """
    # One product for queries, keys and values makes a step slower on a TPU (docs/decisions/004-compute-attention-plainly.md).
    query = split_heads(x, matrices[0], heads, biases[0])
    key_heads = heads * matrices[1].shape[1] // matrices[0].shape[1]
    key, value = (
        split_heads(source, matrix, key_heads, projection_bias)
        for matrix, projection_bias in zip(matrices[1:3], biases[1:3], strict=True)
    )
    if norms:
        query, key = (rms_norm(part, norm, epsilon=epsilon) for part, norm in zip((query, key), norms, strict=True))
    if span.query_angles is not None and span.key_angles is not None:
        query, key = rotate_heads(query, span.query_angles), rotate_heads(key, span.key_angles)
    query = query if scale == 1.0 else query * tf.constant(scale, x.dtype)
    # One mask for all queries drops the probabilities of a key. Dropping its value is the same, with a smaller mask.
    dropped = dropout.mask([x.shape[0], source.shape[1], heads, 1], x.dtype, site=dropout_site)
    key, value = repeat_heads(key, heads), repeat_heads(value, heads)
    added = bias(query, key) if callable(bias) else bias
    attended = attend(query, key, value, bias=added, mask=span.mask, dropped=dropped, cap=cap)
    out = project(tf.reshape(attended, [*attended.shape[:2], matrices[3].shape[0]]), matrices[3])
    return out if biases[3] is None else out + biases[3]
