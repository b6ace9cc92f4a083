"""The version, which manifests, checkpoints and requests name."""

__version__ = "0.1.0"
