"""Read published model files: from safetensors, PyTorch's, Flax's and TensorFlow's files to tensors by name."""
