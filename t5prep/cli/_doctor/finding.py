"""Define the result of one check."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """Hold the result of one check.

    `state` is ok, absent (an optional part is missing) or wrong; `mend` is the command that fixes it, or "".
    """

    what: str
    state: str
    seen: str
    mend: str = ""


def healthy(findings: list[Finding]) -> bool:
    """Check whether no finding is wrong; absent parts are allowed."""
    return all(finding.state != "wrong" for finding in findings)
