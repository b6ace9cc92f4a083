"""Read raw files of any format (CSV, TSV, JSON lines, Parquet, text) into blocks of rows."""
