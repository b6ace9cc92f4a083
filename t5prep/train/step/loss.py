"""Compute the cross-entropy over target tokens, with label smoothing and z-loss, as a sum and not as a mean.

The sum and the number of targets stay separate until all replicas and all micro-batches are added up; only then is the
sum divided. So the loss does not depend on how a batch is split, and a part without targets adds nothing.
"""

from typing import NamedTuple

import tensorflow as tf


class Sums(NamedTuple):
    """Hold the values that are added up over replicas and micro-batches: float32 scalars."""

    loss: tf.Tensor  # the loss that is minimised, summed over targets
    targets: tf.Tensor  # how many labels are not -100
    correct: tf.Tensor  # how many of them have the highest logit


def summed_loss(logits: tf.Tensor, labels: tf.Tensor, *, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Sums:
    """Return the loss of float32[batch, length, vocab_size] logits on int32[batch, length] labels, -100 = no target.

    label_smoothing: this share of each target's weight is spread over the whole vocabulary (as in PyTorch).
    z_loss: this times log(Z)**2 is added for each target, which keeps logits near log-probabilities (T5X uses 1e-4).
    """
    losses, correct = token_losses(logits, labels, label_smoothing=label_smoothing, z_loss=z_loss)
    is_target = labels >= 0
    return Sums(
        loss=tf.reduce_sum(tf.where(is_target, losses, 0.0)),
        targets=tf.reduce_sum(tf.cast(is_target, tf.float32)),
        correct=tf.reduce_sum(tf.cast(is_target & correct, tf.float32)),
    )


def token_losses(
    logits: tf.Tensor, labels: tf.Tensor, *, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return each position's loss and whether its highest logit is its label: float32 and bool[batch, length].

    The gradient is written by hand because it is one expression of the logits: no other tensor of their size is kept.
    """
    vocabulary = logits.shape[-1]
    is_label = tf.range(vocabulary) == labels[..., None]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(logits: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], object]:
        highest = tf.reduce_max(logits, axis=-1, keepdims=True)
        log_z = highest[..., 0] + tf.math.log(tf.reduce_sum(tf.exp(logits - highest), axis=-1))
        of_label = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)
        target = of_label
        if label_smoothing:
            target = (1.0 - label_smoothing) * of_label + label_smoothing * tf.reduce_mean(logits, axis=-1)
        losses = log_z - target + z_loss * tf.square(log_z)

        def gradient(upstream: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            probabilities = tf.exp(logits - log_z[..., None])
            wanted = (1.0 - label_smoothing) * tf.cast(is_label, tf.float32) + label_smoothing / vocabulary
            of_logits = probabilities * (1.0 + 2.0 * z_loss * log_z)[..., None] - wanted
            return upstream[..., None] * of_logits

        return (losses, of_label >= highest[..., 0]), gradient

    losses, correct = run(logits)
    return losses, correct
