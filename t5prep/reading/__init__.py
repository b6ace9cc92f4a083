"""Reading: raw files in, blocks of rows out, whatever the format (CSV, TSV, JSON lines, Parquet, text)."""
