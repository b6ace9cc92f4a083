"""Preparing: blocks of rows in, sorted shards and their manifest out. The stages that `pipelines` wires with Beam."""
