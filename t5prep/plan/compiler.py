"""The TPU compiler in a process of its own: `python -m t5prep.plan.compiler TOPOLOGY DEVICES < module.pb`.

libtpu reads its settings from the environment when it is loaded, may end the process, and holds gigabytes while it works; so
it never runs inside the program that asks. This is the one file that uses private parts of jax (0.10.2), because jax has no
public way to compile a module for a topology that is only described.

A module comes as a serialized HloModuleProto: protocol buffers outlive versions, while StableHLO text that TensorFlow 2.20
writes is not always text that a newer parser reads (large boolean constants are not).

It prints one JSON object: memory in bytes, FLOPs, bytes, estimated cycles; or `error`, the compiler's own words.
"""

import json
import os
import re
import sys
from typing import Any

from t5prep.plan import hlo

# libtpu asks Google's metadata server what machine this is, unless it is told.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}

_COPY = re.compile(r"= mhlo\.copy (%\S+) : (tensor<\S+>)")
_PHILOX = re.compile(
    r"%(\S+), %(\S+) = stablehlo\.rng_bit_generator (%\S+), algorithm = +PHILOX : "
    r"\(tensor<3xui64>\) -> \(tensor<3xui64>, (tensor<\S+>)\)"
)


def for_tpu(module: str) -> str:
    """A module as TensorFlow lowers it on a CPU → as it lowers it on a TPU, both as StableHLO text.

    Copies of another dialect, which do nothing, become reshapes. Random bits: `auto_select` means Philox on CPU and GPU;
    on a TPU it means the chip's own generator, keyed by the key and the first word of the counter
    (tensorflow/compiler/tf2xla/kernels/stateless_random_ops_v2.cc, MaybeSliceCounter).
    """
    module = _COPY.sub(r"= stablehlo.reshape \1 : (\2) -> \2", module)
    return _PHILOX.sub(
        lambda m: (
            f"%{m[1]}_in = stablehlo.slice {m[3]} [0:2] : (tensor<3xui64>) -> tensor<2xui64>\n"
            f"%{m[1]}_two, %{m[2]} = stablehlo.rng_bit_generator %{m[1]}_in, algorithm = DEFAULT : "
            f"(tensor<2xui64>) -> (tensor<2xui64>, {m[4]})\n"
            f"%{m[1]}_one = stablehlo.slice %{m[1]}_two [1:2] : (tensor<2xui64>) -> tensor<1xui64>\n"
            f"%{m[1]} = stablehlo.concatenate %{m[1]}_two, %{m[1]}_one, dim = 0 : "
            f"(tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64>\n"
        ),
        module,
    )


def compile_here(module: bytes, *, topology: str, devices: int, keep: str = "") -> dict[str, Any]:
    """Compiles in this process, whose environment must hold ENVIRONMENT. `keep` is a file for the compiled text."""
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies
    from jaxlib._jax.mlir import hlo_to_stablehlo

    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
        context = mlir.make_ir_context()
        with context:
            text = ir.Module.parse(hlo_to_stablehlo(module)).operation.get_asm(enable_debug_info=True)
            parsed = ir.Module.parse(for_tpu(text))
        used = tuple(described[:devices])
        options = compiler.get_compile_options(num_replicas=len(used), num_partitions=1)
        executable = used[0].client.compile(parsed, xla_client.DeviceList(used), options)
    except Exception as error:  # jaxlib raises its own and MLIR's; the words matter, not the class
        return {"error": str(error)}
    text = executable.hlo_modules()[0].to_string()
    if keep:
        with open(keep, "w") as file:
            file.write(text)
    memory, cost = executable.get_compiled_memory_stats(), executable.cost_analysis()
    return {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
        "program_bytes": memory.generated_code_size_in_bytes,
        "flops": int(cost.get("flops", 0)),
        "accessed_bytes": int(cost.get("bytes accessed", 0)),
        "estimated_cycles": hlo.estimated_cycles(text),
        "loops": hlo.has_loops(text),
        "by_operation": dict(list(hlo.by_operation(text, depth=3).items())[:40]),
    }


def main() -> None:
    """Reads a module from stdin, writes the answer to stdout."""
    os.environ.update(ENVIRONMENT)
    topology, devices, *keep = sys.argv[1:]
    answer = compile_here(
        sys.stdin.buffer.read(), topology=topology, devices=int(devices), keep=keep[0] if keep else ""
    )
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
