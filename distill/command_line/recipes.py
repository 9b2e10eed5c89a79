"""`distill recipes`: list, copy and describe recipes."""

import json
from pathlib import Path
from typing import Annotated

import typer

from distill.command_line import completion
from distill.command_line.options import local_path
from distill.commands.progress import show

app = typer.Typer(rich_markup_mode=None, help="List or copy shipped recipes; print every key of a recipe.")


@app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """List the shipped recipes."""
    if context.invoked_subcommand is None:
        list_recipes()


@app.command("list")
def list_recipes() -> None:
    """List the shipped recipes; `distill recipes` alone does it, too."""
    from distill.recipe.loading import shipped
    from distill.reports.text_table import table

    rows = [(name, first_sentence(path.read_text(encoding="utf-8"))) for name, path in shipped().items()]
    show(table(("recipe", "what it is"), rows, left=True))


def first_sentence(recipe: str) -> str:
    """The first sentence of the comment at the beginning of a recipe; it may be longer than a line."""
    return recipe.removeprefix("# ").replace("\n# ", " ").split(". ")[0].splitlines()[0].rstrip(".") + "."


@app.command("copy")
def copy_recipe(
    name: Annotated[
        str, typer.Argument(metavar="NAME", autocompletion=completion.shipped_recipes, help="A shipped recipe.")
    ],
    destination: Annotated[Path, typer.Argument(parser=local_path, metavar="DEST", help="Folder or file.")] = Path(),
) -> None:
    """Copy a shipped recipe, with its assets, to edit it."""
    from distill.commands.stages import copy_shipped

    show(copy_shipped(name, destination))


@app.command("schema")
def print_schema() -> None:
    """Print the JSON schema of a recipe, for editors."""
    from distill.recipe.loading import schema

    show(json.dumps(schema(), indent=2))


@app.command("reference")
def print_reference() -> None:
    """Print every key of a recipe with type, default, description and effect, as Markdown."""
    from distill.recipe.reference import reference

    show(reference())
