"""Filters: a text in, the text that goes on out, or why it does not (`--filter`)."""
