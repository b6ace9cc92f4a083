"""The kinds of stages: what is mapped, keyed, combined and cached, as plain objects with typed inputs and outputs.

A stage names the stages that it reads. `pipelines.local` executes a list of them on the processes of one machine,
`pipelines.graph` adds it to a Beam pipeline; neither knows what a preparation is. Nothing here imports Beam.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
Key = TypeVar("Key")
Item = TypeVar("Item")
Out_co = TypeVar("Out_co", covariant=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Stage(Generic[Out_co]):
    """A stage that makes elements, or one value. `values` are arguments of its step that other stages compute."""

    name: str
    elements: tuple["Stage[Any]", ...] = ()
    values: Mapping[str, "Stage[Any]"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Create(Stage[Out]):
    """Make what a step yields that is called once."""

    step: Callable[..., Iterable[Out]]


def remove_nothing(element: Any, results: Sequence[Any]) -> None:
    """Remove no file."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Map(Stage[Out], Generic[In, Out]):
    """Make all that a step yields of each element; a step that takes long is for `workers`.

    Results of an element are cached for the same job again under the name that `cache_name` gives it ("": they are not), and with
    a file of the output if `cache_file` names one. The bytes of results of `stored` types lie in a file where workers share no disk.
    `remove` is called with an element and its results when these have arrived, and removes files that nothing reads any more.
    """

    elements: tuple[Stage[In], ...] = dataclasses.field(kw_only=False)
    step: Callable[Concatenate[In, ...], Iterable[Out]]
    workers: bool = False
    cache_name: Callable[[In], str] | None = None
    cache_file: Callable[[In], str] | None = None
    stored: tuple[type, ...] = ()
    remove: Callable[[In, Sequence[Out]], None] = remove_nothing


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MapInOrder(Stage[Out], Generic[In, Out]):
    """Make what a step yields of all elements, in their order; for an executor that has one, and reads them one by one."""

    elements: tuple[Stage[In], ...] = dataclasses.field(kw_only=False)
    step: Callable[[Iterable[In]], Iterable[Out]]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Stage[Out]):
    """Take the elements of a type."""

    type: type[Out]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Reshuffle(Stage[Out], Generic[Out]):
    """Spread elements over all workers; those of a `key` stay together."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)
    key: Callable[[Out], str] | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GroupByKey(Stage[tuple[Key, Iterable[Item]]], Generic[Key, Item]):
    """Make for each key one element, of the key and all its items, from pairs of both."""

    elements: tuple[Stage[tuple[Key, Item]], ...] = dataclasses.field(kw_only=False)
    key: type[Key]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Batch(Stage[list[Out]], Generic[Out]):
    """Make lists of `size` elements, as they come, and one of the rest; for an executor where one process sees all of them."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)
    size: int


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Call(Stage[Out]):
    """Make one value: what a step returns."""

    step: Callable[..., Out]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Combine(Stage[Out], Generic[Out]):
    """Make one value: all elements added up."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)
    zero: Callable[[], Out]
    add: Callable[[Out, Out], Out]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ToList(Stage[list[Out]], Generic[Out]):
    """Make one value: the list of few elements, without the bytes of those that are stored."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ToTable(Stage[Mapping[Key, Sequence[Item]]], Generic[Key, Item]):
    """Make one value: a table of the items of each key."""

    elements: tuple[Stage[tuple[Key, Item]], ...] = dataclasses.field(kw_only=False)
    key: type[Key]


def in_order(last: Stage[Any]) -> list[Stage[Any]]:
    """Return a stage and all that it reads, each behind the stages that itself reads."""
    ordered: dict[Stage[Any], None] = {}

    def visit(stage: Stage[Any]) -> None:
        if stage not in ordered:
            for source in (*stage.elements, *stage.values.values()):
                visit(source)
            ordered[stage] = None

    visit(last)
    return list(ordered)
