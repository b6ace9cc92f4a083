"""Convert text to token ids, and cut, corrupt, chunk and pack the ids."""
