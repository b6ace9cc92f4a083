"""Run the `t5prep` command. Data goes to stdout, messages go to stderr, and the exit code tells success.

COMMANDS has the module of each command. Neither this module nor the top of a command's module may import Beam,
TensorFlow or transformers, because `--help` must be fast.
"""

import os
import signal
import sys

# During imports and at its end, Ctrl-C ends the command at once, without a traceback. This is set before the other imports,
# and only if this process is the command: in another program, Ctrl-C belongs to that program. A signal that the shell
# ignores (`command &` in a script) stays ignored.
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN and (
    os.path.basename(sys.argv[0]) == "t5prep" or "t5prep.cli" in sys.orig_argv
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import atexit
import collections
import contextlib
import faulthandler
import gc
import importlib
import io
import platform
import resource
from collections.abc import Sequence
from typing import Any

import click

from t5prep.cli import _failing, _output, _terminal
from t5prep.cli._failing import CodedError, CodedUsageError
from t5prep.errors import did_you_mean
from t5prep.io import installation, signals
from t5prep.version import __version__

# Section of `--help` → its commands, in the order in which a user needs them → their modules in this package.
SECTIONS = {
    "Prepare": {
        "prepare": "prepare_command",
        "tasks": "task_commands",
        "filter": "task_commands",
        "tokenizer": "tokenizer_commands",
    },
    "Look": dict.fromkeys(("inspect", "why", "table", "report", "explore", "diff", "verify"), "dataset_commands"),
    "Train": {
        "plan": "plan_command",
        "train": "train_command",
        "eval": "predict_commands",
        "predict": "predict_commands",
        "embed": "embed_command",
    },
    "Share": {"upload": "dataset_commands", "export": "export_commands", "push": "export_commands"},
    "Machine": dict.fromkeys(("doctor", "cache", "completion"), "machine_commands"),
}
COMMANDS = {command: module for section in SECTIONS.values() for command, module in section.items()}

# Packages in `--version`, in the order that is useful in a bug report. Missing ones are left out.
_VERSIONED_PACKAGES = (
    *("apache-beam", "sentencepiece", "numpy", "pyarrow", "tensorflow", "tensorflow-cpu", "transformers"),
    *("jax", "libtpu"),
)


# Child processes, also those that libraries start, must not import a file such as `random.py` from the user's folder.
os.environ.setdefault("PYTHONSAFEPATH", "1")
# At its end, Python collects garbage once more: 0.3 s with Beam's modules. Frozen objects are not searched.
atexit.register(gc.freeze)
# By default, Python also collects after every 700 new objects. Importing modules makes many, and frees none of them.
gc.set_threshold(50_000)


class _Commands(click.Group):
    """Import a command's module when it is called, and print errors of users as one sentence with exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__name__}.{COMMANDS[name]}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in `--help`, by section."""
        for title, names in SECTIONS.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (f"{name:<10}", command.get_short_help_str(limit=60))
                        for name, command in commands.items()
                        if command
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of `args`, with advice for an unknown name. Raises UsageError for a repeated option."""
        if args and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            raise CodedUsageError(
                f'There is no command "{args[0]}".{did_you_mean(args[0], self.list_commands(ctx))}',
                ctx,
                code="option.unknown-command",
            )
        name, command, command_args = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            _refuse_repeats(command, ctx, command_args)
        return name, command, command_args

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run the command of `args`, with safe output (`_terminal`) and one sentence for an error or an interruption.

        `args` is None if this process is the command; tests pass a list. Environment variables are set only in the former.
        """
        # faulthandler prints a traceback at a crash. It also gives the main thread a separate stack for signals, without
        # which a signal during a matrix product of jaxlib damages the heap (io/signals.py).
        if sys.__stderr__ is not None and not faulthandler.is_enabled():
            faulthandler.enable(sys.__stderr__)
        # File names may contain bytes that are no UTF-8. Printing these as escapes avoids a UnicodeEncodeError.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        arguments = list(args) if args is not None else sys.argv[1:]
        # OpenBLAS reserves address space for a thread of each core, and ends the process if `ulimit -v` forbids this.
        if args is None and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # TensorFlow 2.21 prints two lines about oneDNN at any log level. t5prep needs no oneDNN: XLA runs the models.
        if args is None:
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
        # With this variable TensorFlow does not import Keras, which takes a quarter of its start and which nothing here uses.
        # The exception is `export --text`: its tensorflow_text needs Keras.
        if args is None and "--text" not in arguments:
            os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        with (
            _terminal.dropped_at_end(),
            _terminal.escape_output(data="predict" in arguments[:1]),
            _terminal.stoppable(),
        ):
            try:
                return super().main(args, **extra)
            except OSError as error:  # `--help` prints before `invoke`, so a full disk behind stdout arrives here
                if (message := _failing.sentence(error)) is None or not extra.get("standalone_mode", True):
                    raise
                message.show()
                sys.exit(message.exit_code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them for advice about usage errors (`_with_advice`)."""
        ctx.meta[_output.ARGUMENTS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _failing.add_code(error) from error
        except KeyboardInterrupt:  # click would print "Aborted!"
            raise _terminal.stopped(None) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and convert exceptions that are not bugs to click's, which print one sentence."""
        try:
            installation.check_names_are_utf8()
            return super().invoke(ctx)
        except click.UsageError as error:
            # The attribute is final in click's types since 8.5, but only it reaches every kind of usage error.
            error.message = _with_advice(error, ctx)  # type: ignore[misc]
            raise _with_json(_failing.add_code(error), ctx) from error
        except click.ClickException:
            raise
        except KeyboardInterrupt:
            raise _with_json(_terminal.stopped(ctx.invoked_subcommand), ctx) from None
        except Exception as error:
            if signals.received():  # a library has converted the KeyboardInterrupt to another exception
                raise _with_json(_terminal.stopped(ctx.invoked_subcommand), ctx) from None
            if (message := _failing.sentence(error)) is None:
                raise
            raise _with_json(message, ctx) from error


def _with_json(error: click.ClickException, ctx: click.Context) -> click.ClickException:
    """Return the error, after printing it as JSON where the command has `--json`."""
    arguments = ctx.meta[_output.ARGUMENTS]
    has_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    if has_json and isinstance(error, CodedError | CodedUsageError):
        _failing.print_json(error)
    return error


def _refuse_repeats(command: click.Command, parent: click.Context, args: Sequence[str]) -> None:
    """Raise UsageError if `args` repeat an option of `command`, or of its subcommand, that takes one value.

    click would silently use the last value.
    """
    context = command.context_class(command, parent=parent, info_name=command.name)
    try:
        _, subcommand_args, parameters = command.make_parser(context).parse_args(list(args))
    except click.UsageError:
        return  # the command reports this error itself when it parses its arguments
    counts = collections.Counter(parameter for parameter in parameters if isinstance(parameter, click.Option))
    for option, count in counts.items():
        if count > 1 and not (option.multiple or option.count or option.is_eager):
            name = max(option.opts, key=len)
            raise CodedUsageError(
                f"{name} appears {count} times on the command line. Pass it once.", context, code="option.repeated"
            )
    if (
        isinstance(command, click.Group)
        and subcommand_args
        and (inner := command.get_command(context, subcommand_args[0]))
    ):
        _refuse_repeats(inner, context, subcommand_args[1:])


def _with_advice(error: click.UsageError, group: click.Context) -> str:
    """Return the message of `error`, with advice for two common mistakes.

    These are a setting as an option (`--learning-rate 1e-3`), and a value without its option (`t5prep train data/sample`).
    """
    if error.ctx is None:
        return error.message
    arguments: list[str] = group.meta[_output.ARGUMENTS]
    if isinstance(error, click.NoSuchOption) and (advice := _advise_setting(error, error.ctx, arguments)):
        error.possibilities = []  # type: ignore[misc]
        return f"{error.message} {advice}"
    return _advise_option(error, error.ctx, arguments) or error.message


def _advise_setting(error: click.NoSuchOption, context: click.Context, arguments: Sequence[str]) -> str:
    """Return how to type a setting that was typed as an option, or "" if the unknown option is no setting."""
    if "--set" not in _option_names(context):
        return ""
    from t5prep.training.settings.train_config import FIELDS

    setting = error.option_name.lstrip("-").replace("-", "_")
    if setting not in FIELDS:
        return ""
    is_typed = error.option_name in arguments
    following_arguments = arguments[arguments.index(error.option_name) + 1 :] if is_typed else []
    has_value = following_arguments and not following_arguments[0].startswith("-")
    return f"{setting} is a setting: --set {setting}={following_arguments[0] if has_value else 'VALUE'}"


def _advise_option(error: click.UsageError, context: click.Context, arguments: Sequence[str]) -> str:
    """Return a better message for a value that was typed without its option, or "" for another mistake."""
    option = "--data" if context.info_name == "train" else "--model"
    if option not in _option_names(context):
        return ""
    if "unexpected extra argument" in error.message:
        return f"{error.message}. Name it with its option: {option} ..."
    value = arguments[1] if len(arguments) > 1 and not arguments[1].startswith("-") else ""
    if not value or not isinstance(error, click.MissingParameter):
        return ""
    out = " --out RUN" if context.info_name in ("train", "export") else ""
    command = f"t5prep {context.info_name} {option} {value}{out} ..."
    return f'"{value}" is given without its option. Did you mean: {command}?'


def _option_names(context: click.Context) -> set[str]:
    """Return the names of the options of a command, as they are typed."""
    return {name for parameter in context.command.params for name in parameter.opts}


def _show_versions(ctx: click.Context, _: click.Parameter, is_requested: bool) -> None:
    """Print the version of t5prep, then a line with the versions of Python and of the packages that it depends on."""
    if not is_requested or ctx.resilient_parsing:
        return
    import importlib.metadata  # imported here, because it takes as long as importing click

    versions = [f"Python {platform.python_version()}"]
    for name in _VERSIONED_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    click.echo(f"t5prep {__version__}\n{', '.join(versions)}")
    ctx.exit()


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_versions,
    help="Show versions and exit.",
)
def main() -> None:
    """Prepare text as TFRecord shards, and train T5 and BERT models on them.

    \b
    Example:
      t5prep prepare so_quality --source sample: --tokenizer sample: --out data/sample
    """
