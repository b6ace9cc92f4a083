"""Near-duplicates: texts in, rows that repeat another row out (MinHash, LSH, exact Jaccard, connected components)."""
