"""Convert floats of 16 and 32 bits from Arrow to the shortest digits: 4.2 instead of 4.199999809265137."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def with_shortest_floats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with float16 and float32 columns as float64 columns of the same shortest digits.

    float32 is converted inside of lists and structs, too, but float16 is not.

    >>> batch = pa.record_batch({"score": pa.array([4.2], pa.float32())})
    >>> with_shortest_floats(batch).to_pylist()
    [{'score': 4.2}]
    """
    for index, field in enumerate(batch.schema):
        if pa.types.is_float16(field.type):  # Arrow formats it with the digits of float32
            values = [
                None if value is None else float(str(np.float16(value))) for value in batch.column(index).to_pylist()
            ]
            batch = batch.set_column(index, field.with_type(pa.float64()), pa.array(values, pa.float64()))
            continue
        # A float32 becomes text, which has its shortest digits, and then float64.
        texts, numbers = _replaced(field.type, pa.string()), _replaced(field.type, pa.float64())
        if texts != field.type:
            column = pc.cast(pc.cast(batch.column(index), texts), numbers)
            batch = batch.set_column(index, field.with_type(numbers), column)
    return batch


def _replaced(type: pa.DataType, number: pa.DataType) -> pa.DataType:
    """Return a type with `number` instead of each float32."""
    if pa.types.is_float32(type):
        return number
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(_replaced(type.value_type, number)))
    if pa.types.is_large_list(type):
        return pa.large_list(type.value_field.with_type(_replaced(type.value_type, number)))
    if pa.types.is_fixed_size_list(type):
        return pa.list_(type.value_field.with_type(_replaced(type.value_type, number)), type.list_size)
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_replaced(field.type, number)) for field in type])
    return type
