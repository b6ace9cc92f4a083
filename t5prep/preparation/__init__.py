"""Prepare blocks of rows into sorted shards and their manifest. The stages that `pipelines` wires with Beam."""
