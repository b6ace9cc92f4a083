"""Tokens: texts in, token ids out, and arithmetic on ids: truncation, span corruption, chunks, packing."""
