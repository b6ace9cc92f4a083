"""Texts and an encoder → files of vectors."""
