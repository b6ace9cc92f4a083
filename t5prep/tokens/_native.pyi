"""Declare the types of the encoder in C (native/module.c)."""

import numpy as np

class Unigram:
    def __new__(cls, model: bytes) -> Unigram: ...
    def encode(self, data: object, offsets: np.ndarray) -> tuple[bytes, bytes]: ...

def write_records(
    ids: bytes | bytearray,
    id_starts: np.ndarray,
    inputs: np.ndarray,
    input_starts: np.ndarray,
    labels: np.ndarray,
    label_starts: np.ndarray,
    order: np.ndarray,
    lengths: tuple[int, int],
    pads: tuple[int, int],
    masks: bool,
) -> tuple[bytes, bytes]: ...
def write_packed(
    ids: bytes | bytearray,
    id_starts: np.ndarray,
    inputs: np.ndarray,
    input_starts: np.ndarray,
    labels: np.ndarray,
    label_starts: np.ndarray,
    order: np.ndarray,
    row_starts: np.ndarray,
    lengths: tuple[int, int],
    pads: tuple[int, int],
) -> tuple[bytes, bytes]: ...
def read_records(
    data: bytes, sizes: np.ndarray
) -> tuple[bytearray, bytearray, bytearray, bytearray, bytearray, bytearray]: ...
def first_fit(sizes: np.ndarray, room: tuple[int, int], rows: np.ndarray) -> None: ...
def hide_spans(
    tokens: np.ndarray,
    keys: np.ndarray,
    shape: tuple[int, int, int],
    sentinel: int,
    eos: int,
    inputs: np.ndarray,
    targets: np.ndarray,
) -> None: ...
def copy_lists(
    source: np.ndarray, begins: np.ndarray, target: np.ndarray, places: np.ndarray, lengths: np.ndarray
) -> None: ...
def cut_blocks(blocks: tuple[bytes, ...], counts: np.ndarray, places: np.ndarray) -> int: ...
def decode_rows(
    blocks: tuple[bytes, ...],
    places: np.ndarray,
    names: tuple[bytes, ...],
    targets: tuple[np.ndarray, ...],
    lengths: tuple[int, ...],
    fills: tuple[int, ...],
    counts: tuple[int, ...],
    mask: np.ndarray | None,
    pad: int,
) -> int: ...
