"""Paths and buckets: atomic files, Google Cloud Storage, the cache folder, locks, progress lines. Bytes in, bytes out."""
