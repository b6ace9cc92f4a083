"""Find near-duplicates: take texts, return the rows that repeat another one (MinHash, LSH, exact Jaccard, connected components)."""
