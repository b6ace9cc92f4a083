"""Define what a user can choose: each option is a field of a dataclass, for the command line and Python alike."""
