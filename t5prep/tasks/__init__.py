"""Tasks: a row (record) in, a text-to-text example out; one file a corpus in `corpora/`."""
