"""Check which parts of this machine work for t5prep: one finding each, with the command that fixes what does not work."""
