"""A Beam pipeline in this process, with errors as the user should see them."""

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

from t5prep.errors import OutputError, T5prepError

_WHERE = re.compile(r" \[while running '[^']*'\]")


@contextlib.contextmanager
def pipeline(*, out: str) -> Iterator[Any]:
    """A pipeline that runs when the block ends; `out` is named where a disk fails.

    Raises what its steps raised, without Beam's "[while running ...]".
    """
    # Here, because Beam takes seconds to import, in which the worker processes load too.
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    # Beam logs a traceback of every error before it raises it; what matters is raised.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as started:
            yield started
    except T5prepError as error:
        raise type(error)(_WHERE.sub("", str(error))) from error
    except OSError as error:
        raise OutputError(f"{out}: {_WHERE.sub('', str(error))}") from error
