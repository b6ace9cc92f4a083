"""What XLA is told in tests: eight logical devices of the CPU, and to compile quickly, because toys compute for milliseconds.

A step of a toy is then compiled in 0.6 s rather than 4.4 s of processor time; by jaxlib 0.12, which always generates the code
of fusions by way of MLIR, in half of the time.
"""

import importlib.metadata
import importlib.util

DEVICES = "--xla_force_host_platform_device_count=8"
QUICK = "--xla_backend_optimization_level=0"
# A flag that jaxlib does not know ends the process.
if importlib.util.find_spec("jaxlib") and importlib.metadata.version("jaxlib").startswith("0.10."):
    QUICK += " --xla_cpu_use_fusion_emitters=false"
