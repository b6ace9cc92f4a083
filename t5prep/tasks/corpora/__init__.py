"""Collect the built-in corpora: the name of a module here is the name of its task."""
