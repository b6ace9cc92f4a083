"""Cut token ids to a length.

head_tail keeps both ends: `ids[:255] + [marker] + ids[-256:]` for 512, as the tutorial of so_quality does (Sun et al.
2019, arXiv 1905.05583, found both ends best for long documents). Every policy keeps the final EOS.
"""

from collections.abc import Sequence

POLICIES = ("head_tail", "head", "tail")
MARKERS = ("extra_id_1", "none")


def ends(length: int, *, policy: str, marked: bool) -> tuple[int, int]:
    """Return how many ids of the head and of the tail are kept in `length` (with head_tail, a marker takes one place).

    >>> ends(512, policy="head_tail", marked=True), ends(512, policy="head_tail", marked=False)
    ((255, 256), (256, 256))
    >>> ends(512, policy="head", marked=False), ends(512, policy="tail", marked=False)
    ((511, 1), (0, 512))
    """
    if policy == "tail":
        return 0, length
    if policy == "head":
        return length - 1, 1  # the one id of the tail is EOS
    head = (length - 1) // 2 if marked else length // 2
    return head, length - head - marked


def truncate(ids: Sequence[int], length: int, *, policy: str, marker: int | None) -> list[int]:
    """Return `ids` (ending in EOS) cut to at most `length`, or unchanged when they fit.

    `marker` is the sentinel that head_tail puts at the cut, or None.

    >>> truncate([5, 6, 7, 8, 9, 1], 4, policy="head_tail", marker=98)
    [5, 98, 9, 1]
    >>> truncate([5, 6, 7, 8, 9, 1], 4, policy="head", marker=None)
    [5, 6, 7, 1]
    """
    if len(ids) <= length:
        return list(ids)
    marked = marker is not None and policy == "head_tail"
    head, tail = ends(length, policy=policy, marked=marked)
    middle = [marker] if marked and marker is not None else []
    return [*ids[:head], *middle, *ids[len(ids) - tail :]]


def allot(wants: Sequence[int], room: int) -> list[int]:
    """Return how many of `room` places each text gets: short texts what they need, long ones equal shares of the rest.

    >>> allot([10, 300, 400], 410)
    [10, 200, 200]
    """
    given = [0] * len(wants)
    left = room
    for rank, text in enumerate(sorted(range(len(wants)), key=lambda text: wants[text])):
        given[text] = min(wants[text], left // (len(wants) - rank))
        left -= given[text]
    return given
