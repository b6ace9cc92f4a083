"""Define `t5prep serve`, which answers over HTTP."""

import signal
import threading
from typing import Any

import click

from t5prep.cli import _device, _generation, _output


@click.command("serve")
@click.option("--model", required=True, help="A run, a Hugging Face directory, or a Hub name.")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 serves other machines too.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--allow-host", "hosts", multiple=True, help="A name, beside its address, under which clients ask it.")
@click.option("--queue", default=512, show_default=True, type=click.IntRange(min=1), help="Rows that may wait.")
@click.option("--task", default="", help="Of a run on several tasks: which one the rows are for.")
@click.option("--as-text", is_flag=True, help="The page asks for whole inputs, prefix and all.")
@_device.trust_code
@_generation.long
@_device.which
@click.option("--batch", default=16, show_default=True, type=click.IntRange(min=1), help="Rows at a time.")
@_generation.options
@click.option("--scores", is_flag=True, help="Give each answer's score.")
@_device.tokenizer
@_device.options
def command(model: str, host: str, port: int, queue: int, hosts: tuple[str, ...], which: str, **given: Any) -> None:
    """Answer over HTTP: POST /predict takes rows of the run's task or whole inputs as JSON; / is a page to type into.

    What comes together is answered together. Ctrl-C or SIGTERM answers what has been asked, and stops.

    \b
    Example:
      t5prep serve --model runs/sample
      curl localhost:8000/predict -d '{"rows": [{"Title": "How do I sort a list?", "Body": ""}]}'
    """
    _device.need_tensorflow()
    from t5prep.errors import UsageError
    from t5prep.train.model.generation import Generation
    from t5prep.train.predict import rows
    from t5prep.train.predict.predictor import Predictor
    from t5prep.train.predict.serve import Server, address_of
    from t5prep.train.run import run

    generation = Generation(**_generation.taken(given), scores=given.pop("scores"))
    opened = run.open_model(model, which=which)
    manifest = rows.choose(opened.manifests, name=given.pop("task"))
    as_text, trust_code = given.pop("as_text"), given.pop("trust_code")
    asking = rows.as_they_stand() if as_text else rows.asking_of(opened, manifest, trust_code=trust_code)
    given["long"] = given["long"] or ""
    predictor = Predictor(opened, asking=asking, manifest=manifest, generation=generation, **given)
    predictor.answer([rows.as_they_stand().question({"input": "warm"}, place="")])  # compiles the program
    try:
        server = Server((host, port), predictor, asking=asking, name=_name(model), queue=queue, hosts=hosts)
    except OSError as error:
        raise UsageError(
            f"{host}:{port} cannot be served ({error.strerror or error}). Choose another --port or --host."
        ) from error
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    threading.Thread(target=server.serve_forever, name="accepts", daemon=True).start()
    _output.say(f"{_name(model)} answers at {address_of(server)}. Ctrl-C stops it.")
    stopping.wait()
    server.close()
    _output.say("Stopped; everything that was asked is answered.")


def _name(model: str) -> str:
    """Return the last part of a model's name, without the folders of this machine, which stay private.

    >>> _name("/home/me/runs/sample/"), _name("google-t5/t5-base")
    ('sample', 't5-base')
    """
    return model.rstrip("/").rpartition("/")[2]
