"""Wire the stages of `t5prep.prepare` with Beam for this machine, Prism, Flink and Dataflow."""
