"""Settings of a training: their checks, other names, recipes."""
