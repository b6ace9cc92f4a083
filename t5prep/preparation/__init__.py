"""Prepare blocks of rows into sorted shards and their manifest: the work of the stages in `pipelines`, without Beam."""
