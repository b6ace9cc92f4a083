"""Define the version that stands in manifests, in checkpoints and in the User-Agent of requests."""

__version__ = "0.1.0"
