"""Read raw files of each format (CSV, TSV, JSON lines, Parquet, text, CoNLL, documents) into blocks of rows."""
