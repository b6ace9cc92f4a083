"""Preparing: blocks of rows in, sorted shards and their manifest out. The stages that `pipelines` wires with Beam."""

from t5prep import make_callable

make_callable(__name__)
