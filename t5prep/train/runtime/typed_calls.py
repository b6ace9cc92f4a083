"""Tell XLA the custom calls of this package's extension, and write them into programs as XLA calls them today."""

import functools
import re

import jax

# TensorFlow writes an older version of the interface, in which a function is not told the shapes.
_OLDER = re.compile(r'(stablehlo\.custom_call @t5prep_\w+\([^)]*\) \{)api_version = \d+ : i32, backend_config = ""')


def with_typed_calls(module: str) -> str:
    """Return a module's text with our custom calls in the typed interface, after telling XLA their functions."""
    text, calls = _OLDER.subn(r"\1api_version = 4 : i32, backend_config = {}", module)
    if calls:
        _register()
    return text


@functools.cache
def _register() -> None:
    from t5prep.train import _native

    fastest = next(iter(_native.custom_calls().values()))
    for name, function in fastest.items():
        jax.ffi.register_ffi_target(name, function, platform="cpu")
