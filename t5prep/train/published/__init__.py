"""Model files as they are published: from safetensors, PyTorch's, Flax's and TensorFlow's files to tensors by their names."""
