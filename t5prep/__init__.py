"""t5prep: text from Kaggle, Zenodo, the Hugging Face Hub or a disk to a trained T5, by way of verified TFRecord shards."""

__version__ = "0.1.0"
