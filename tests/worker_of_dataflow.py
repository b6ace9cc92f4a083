"""Run in an environment that has the staged package and nothing else of ours: unpickles a job's DoFns, and does the job.

python worker_of_dataflow.py pipeline.pb
"""

import importlib.util
import json
import sys


def main() -> None:
    from apache_beam.internal import pickler
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability import common_urns, python_urns
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    with open(sys.argv[1], "rb") as file:
        pipeline = beam_runner_api_pb2.Pipeline.FromString(file.read())
    fns = []
    for transform in pipeline.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            if payload.do_fn.urn != python_urns.PICKLED_DOFN_INFO:  # Beam's own, such as the identity after a combiner
                continue
            fn = pickler.loads(payload.do_fn.payload)
            fns.append(f"{transform.unique_name}: {type(fn[0] if isinstance(fn, tuple) else fn).__name__}")
    for environment in pipeline.components.environments.values():
        environment.urn = python_urns.EMBEDDED_PYTHON
        environment.payload = b""
        del environment.dependencies[:]
    FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([])).wait_until_finish()
    import t5prep

    print(
        json.dumps(
            {
                "fns": fns,
                "t5prep": t5prep.__file__,
                "tensorflow": importlib.util.find_spec("tensorflow") is not None,
                "imported": sorted({name.partition(".")[0] for name in sys.modules}),
            }
        )
    )


main()
