"""Beam pipelines: the stages of `t5prep.prepare` wired for this machine, Prism, Flink and Dataflow."""
