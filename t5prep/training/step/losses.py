"""Compute the cross-entropy at target tokens, with label smoothing and z-loss. objectives.py has the losses of other targets."""

import tensorflow as tf


def token_losses(
    logits: tf.Tensor, labels: tf.Tensor, *, label_smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return each position's loss, float32[batch, length], and whether its label has the highest logit, bool[batch, length].

    logits: float32[batch, length, vocabulary]; labels: int32[batch, length]. z_loss: the weight of log(Z)^2, which keeps the
    softmax's normalizer Z near 1. The gradient is defined explicitly, as one expression of the logits, so that no other tensor
    of their size is stored.
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
            target_probabilities = (1.0 - label_smoothing) * tf.cast(
                is_label, tf.float32
            ) + label_smoothing / vocabulary
            of_logits = probabilities * (1.0 + 2.0 * z_loss * log_z)[..., None] - target_probabilities
            return upstream[..., None] * of_logits

        return (losses, of_label >= highest[..., 0]), gradient

    losses, correct = run(logits)
    return losses, correct
