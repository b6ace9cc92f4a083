"""Compute T5 in plain TensorFlow: weights and token ids in; logits, or generated ids and their scores, out."""
