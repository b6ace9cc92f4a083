"""Read, check, show, compare and upload a prepared dataset: its manifest and TFRecord shards. Needs no TensorFlow."""
