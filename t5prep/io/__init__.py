"""Read and write files and objects of buckets: atomic files, Google Cloud Storage, uploads, the cache, signals, progress."""
