"""The T5 model: its weights, forward pass and decoding, in plain TensorFlow."""
