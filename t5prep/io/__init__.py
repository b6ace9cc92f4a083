"""Read and write files and objects: atomic files, Google Cloud Storage, the store of what can be made again, locks, progress lines."""
