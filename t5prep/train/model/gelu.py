"""Compute the exact GELU (Hendrycks and Gimpel 2016), so that a TPU computes its error function once a step."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from t5prep.train.model.switches import is_on

# The error function as x P(x^2) / Q(x^2), of |x| up to REACH, to 1e-7: the coefficients of Eigen (SpecialFunctionsImpl.h),
# highest power first. TensorFlow's own becomes an operation that StableHLO does not have.
P = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)
REACH = 4.0


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Return x times the share of a standard normal distribution that is below x.

    In bfloat16 it is for programs of XLA alone: value and slope are computed together and kept. Otherwise XLA keeps x and
    computes the error function again in each product that reads one of them, three times a layer.
    """
    if x.dtype == tf.float32:
        return tf.nn.gelu(x, approximate=False)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        wide = tf.cast(x, tf.float32)
        below = 0.5 * (1.0 + erf(wide * math.sqrt(0.5)))
        slope = below + wide * tf.exp(-0.5 * tf.square(wide)) / math.sqrt(2.0 * math.pi)
        value, kept = tf.cast(wide * below, x.dtype), tf.cast(slope, x.dtype)
        if is_on("barriers"):
            (value,), (kept,) = xla.optimization_barrier(value), xla.optimization_barrier(kept)
        return value, lambda upstream: upstream * kept

    return run(x)


def erf(x: tf.Tensor) -> tf.Tensor:
    """Return the error function of float32 values.

    >>> [round(float(erf(tf.constant(x))), 4) for x in (-9.0, -0.5, 0.0, 1.0)]
    [-1.0, -0.5205, 0.0, 0.8427]
    """
    x = tf.clip_by_value(x, -REACH, REACH)
    return x * _polynomial(tf.square(x), P) / _polynomial(tf.square(x), Q)


def _polynomial(x: tf.Tensor, coefficients: Sequence[float]) -> tf.Tensor:
    return functools.reduce(lambda total, one: total * x + one, coefficients[1:], tf.fill(x.shape, coefficients[0]))
