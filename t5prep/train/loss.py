"""Cross-entropy over target tokens, with label smoothing and z-loss, summed and not averaged.

The sum and the number of targets are kept apart until all replicas and all micro-batches are in: only then is the one
divided by the other, so that no split of a batch changes its loss, and a part without targets is worth nothing.
"""

from typing import NamedTuple

import tensorflow as tf


class Sums(NamedTuple):
    """What adds up over replicas and micro-batches: float32 scalars."""

    loss: tf.Tensor  # what is minimised, summed over targets
    targets: tf.Tensor  # how many labels are not -100
    correct: tf.Tensor  # how many of them the highest logit names


def summed_loss(logits: tf.Tensor, labels: tf.Tensor, *, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Sums:
    """The loss of float32[batch, length, vocab_size] logits on int32[batch, length] labels, -100 = no target.

    label_smoothing: this share of each target's weight is spread over the whole vocabulary (as PyTorch has it).
    z_loss: this times log(Z)**2 is added for each target, which keeps logits near log-probabilities (T5X uses 1e-4).
    """
    losses, correct = token_losses(logits, labels, tf.constant(label_smoothing), tf.constant(z_loss))
    is_target = labels >= 0
    return Sums(
        loss=tf.reduce_sum(tf.where(is_target, losses, 0.0)),
        targets=tf.reduce_sum(tf.cast(is_target, tf.float32)),
        correct=tf.reduce_sum(tf.cast(is_target & correct, tf.float32)),
    )


@tf.custom_gradient  # type: ignore[untyped-decorator]
def token_losses(
    logits: tf.Tensor, labels: tf.Tensor, label_smoothing: tf.Tensor, z_loss: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], object]:
    """Each position's loss, float32[batch, length], and whether its highest logit is its label, bool[batch, length].

    The gradient is written out because it is one expression of the logits: nothing of their size is kept besides them.
    """
    vocabulary = logits.shape[-1]
    is_label = tf.range(vocabulary) == labels[..., None]
    highest = tf.reduce_max(logits, axis=-1, keepdims=True)
    log_z = (highest + tf.math.log(tf.reduce_sum(tf.exp(logits - highest), axis=-1, keepdims=True)))[..., 0]
    of_label = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)
    target = (1.0 - label_smoothing) * of_label + label_smoothing * tf.reduce_mean(logits, axis=-1)
    losses = log_z - target + z_loss * tf.square(log_z)

    def gradient(upstream: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, None, None, None]:
        probabilities = tf.exp(logits - log_z[..., None])
        wanted = (1.0 - label_smoothing) * tf.cast(is_label, tf.float32) + label_smoothing / vocabulary
        of_logits = probabilities * (1.0 + 2.0 * z_loss * log_z)[..., None] - wanted
        return upstream[..., None] * of_logits, None, None, None

    return (losses, of_label >= highest[..., 0]), gradient
