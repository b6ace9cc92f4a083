"""Prepare blocks of rows into sorted shards and their manifest. The stages that `pipelines` wires with Beam."""

from t5prep import make_callable

make_callable(__name__)
