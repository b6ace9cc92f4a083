"""Filter texts: take a text, and return the text to use or raise the reason why it is rejected (`--filter`)."""
