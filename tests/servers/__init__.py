"""Stand-ins on loopback for the hosts that text comes from, speaking as the real ones do, with faults on demand."""
