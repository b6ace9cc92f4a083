"""Define the kinds of stages (map, group, combine, cache) as plain objects with typed inputs and outputs.

A stage names the stages that it reads. `pipelines.local_executor` executes a list of stages with the processes of one machine,
and `pipelines.graph` adds the list to a Beam pipeline. Both know only these kinds. No function here imports Beam.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
Key = TypeVar("Key")
Item = TypeVar("Item")
Out_co = TypeVar("Out_co", covariant=True)


# `eq=False` here and below: stages are keys of dictionaries by identity, because two stages may have equal fields.
@dataclasses.dataclass(frozen=True, eq=False)
class Stage(Generic[Out_co]):
    """A stage that yields elements or computes one value.

    `elements` are the stages whose elements it reads. `values` maps names of its step's arguments to stages that
    compute them.
    """

    name: str
    elements: tuple["Stage[object]", ...] = ()
    values: Mapping[str, "Stage[object]"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Create(Stage[Out]):
    """Yield the elements of a step that is called once."""

    step: Callable[..., Iterable[Out]]


def remove_nothing(element: object, results: Sequence[object]) -> None:
    """Remove no file: the default of `Map.remove`."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Map(Stage[Out], Generic[In, Out]):
    """Yield all results of a step that is called with each element.

    * `workers`: run the step in worker processes, because it takes long.
    * `cache_name`: returns the name under which the results of an element are cached for a resumed job; "" caches nothing.
    * `cache_file`: returns the path of the output file that belongs to the cached results.
    * `stored`: where workers share no disk, the bytes of results of these types are written to a file.
    * `remove`: is called with an element and its results once these have arrived; it removes files that no stage reads any more.
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
    """Yield the results of a step that iterates over all elements in order. Only an executor with an order supports it."""

    elements: tuple[Stage[In], ...] = dataclasses.field(kw_only=False)
    step: Callable[[Iterable[In]], Iterable[Out]]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Stage[Out]):
    """Yield the elements of one type."""

    type: type[Out]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Reshuffle(Stage[Out], Generic[Out]):
    """Distribute elements over all workers. Elements with the same `key` go to the same worker."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)
    key: Callable[[Out], str] | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GroupByKey(Stage[tuple[Key, Iterable[Item]]], Generic[Key, Item]):
    """Yield (key, items) for each key of (key, item) pairs."""

    elements: tuple[Stage[tuple[Key, Item]], ...] = dataclasses.field(kw_only=False)
    key: type[Key]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Batch(Stage[list[Out]], Generic[Out]):
    """Yield lists of `size` elements in order of arrival; the last list has the rest. Only one process may see the elements."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)
    size: int


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Call(Stage[Out]):
    """Compute one value: the return value of a step."""

    step: Callable[..., Out]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Combine(Stage[Out], Generic[Out]):
    """Compute one value: the sum of all elements by `add`, starting with `zero()`."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)
    zero: Callable[[], Out]
    add: Callable[[Out, Out], Out]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ToList(Stage[list[Out]], Generic[Out]):
    """Compute one value: the list of all elements, which are few. Elements with stored bytes come without the bytes."""

    elements: tuple[Stage[Out], ...] = dataclasses.field(kw_only=False)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ToTable(Stage[Mapping[Key, Sequence[Item]]], Generic[Key, Item]):
    """Compute one value: a mapping from each key to the items of its (key, item) pairs."""

    elements: tuple[Stage[tuple[Key, Item]], ...] = dataclasses.field(kw_only=False)
    key: type[Key]


def in_order(last: Stage[object]) -> list[Stage[object]]:
    """Return the stage `last` and all stages that it depends on, each after its own inputs."""
    ordered: dict[Stage[object], None] = {}

    def visit(stage: Stage[object]) -> None:
        if stage not in ordered:
            for source in (*stage.elements, *stage.values.values()):
                visit(source)
            ordered[stage] = None

    visit(last)
    return list(ordered)
