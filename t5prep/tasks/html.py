"""Extract text from HTML, and normalize texts for comparison."""

import unicodedata

from selectolax.lexbor import LexborHTMLParser


def strip_html(text: str) -> str:
    """Return the visible text of an HTML fragment, with each block on separate lines.

    >>> strip_html("<p>Why <b>not</b>?</p><pre>x &lt; y</pre>")
    'Why not?\\nx < y'
    """
    if "<" not in text and "&" not in text:
        return text
    parser = LexborHTMLParser(f"<body>{text}")
    for hidden in parser.css("script, style, head"):
        hidden.decompose()
    for block in parser.css("p, div, pre, blockquote, ul, ol, li, table, tr, h1, h2, h3, h4, h5, h6, hr, br"):
        block.insert_before("\n")
        block.insert_after("\n")
    body = parser.body
    lines = (body.text(deep=True) if body else "").splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


def folded(text: str) -> str:
    """Return a text with case, spaces and compatibility forms normalized, so that equivalent texts compare equal.

    >>> folded("  The  ﬁrst TEXT ")
    'the first text'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
