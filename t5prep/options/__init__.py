"""Define the options of users. Each option is a field of a dataclass, for the command line and for Python alike."""
