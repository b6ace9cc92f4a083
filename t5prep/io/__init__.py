"""Read and write files and objects: atomic files, Google Cloud Storage, the cache folder, locks, progress lines."""
