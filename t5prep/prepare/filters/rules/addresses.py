"""E-mail addresses and public IP numbers: the row is rejected, or they are masked in inputs and targets.

A mask is what the standards reserve for examples (RFC 2606 and RFC 5737), which nobody owns. IP numbers of private
networks stay: they name nobody.
"""

import dataclasses
import ipaddress
import re

from t5prep.errors import Reject
from t5prep.tasks.options import option

EMAIL, IP = "email@example.com", "192.0.2.1"
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")


@dataclasses.dataclass(frozen=True)
class Filter:
    """Mask addresses of people and machines, or reject the texts that have them."""

    masks = True

    do: str = option("mask", "what happens to them", choices=("mask", "drop"))

    def __call__(self, text: str) -> str:
        """Return the text with each address masked, or as it is. Raises Reject."""
        masked = _EMAIL.sub(EMAIL, text) if "@" in text else text
        masked = _IP.sub(_mask, masked)
        if masked != text and self.do == "drop":
            raise Reject("found: an e-mail address or IP number")
        return masked


def _mask(match: re.Match[str]) -> str:
    try:
        return IP if ipaddress.IPv4Address(match[0]).is_global else match[0]
    except ValueError:  # 300.1.1.1 and 01.2.3.4 are not addresses
        return match[0]
