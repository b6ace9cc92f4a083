"""One filter a file: a class `Filter` whose fields are its settings; calling it with a text returns the text or raises Reject."""
