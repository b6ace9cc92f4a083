"""The prepared dataset: manifest and TFRecord shards, and what checks, shows, compares and uploads them. No TensorFlow."""
