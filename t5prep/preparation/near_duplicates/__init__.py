"""Find near-duplicate texts (MinHash, LSH, exact Jaccard, connected components): texts enter, rows that repeat another leave."""
