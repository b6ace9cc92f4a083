"""Settings of a training: their fields, their checks, recipes."""
