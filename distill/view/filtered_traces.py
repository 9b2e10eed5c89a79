"""The views of a filtered run in the database of the page.

`facts` finds a trace by its id: its signals, its fate and the rules that it failed. `scanned` has the same rows, for
queries that read all of them: what the files of signals lack is put beside their rows once, in memory. A scan then
joins row by row and not by id, in an eighth of the processor time.
"""

import duckdb
import pyarrow as pa

from filters.signals.schema import SIDE
from filters.tables.signal_database import Tables, identifier, join_aligned, null_column

OWN = pa.schema([("fate", pa.string()), ("label", pa.string())])

_DECIDED = """CASE WHEN decisions.selected THEN 'selected' WHEN decisions.kept THEN 'kept, not selected'
    WHEN decisions.id IS NOT NULL THEN 'dropped' END AS fate,
    list_transform(decisions.reasons, lambda reason: reason.rule) AS rules"""


def with_labels(view: str) -> str:
    """SQL of a view with the label of each trace."""
    return f"SELECT {view}.*, labels.label FROM {view} LEFT JOIN labels ON labels.id = {view}.id"


def create_facts(database: duckdb.DuckDBPyConnection, tables: Tables) -> None:
    """Create the view `facts` over the views of `filters.tables.signal_database.connect`, which has `decisions`."""
    # `signals` joins the side tables; without any, rows of the aligned files are put side by side.
    joined = (
        "decisions LEFT JOIN signals ON decisions.id = signals.id"
        if tables.side
        else join_aligned(database, "decisions", ["signals"])
    )
    database.execute(f"CREATE TEMP VIEW facts AS SELECT signals.*, {_DECIDED} FROM {joined}")


def create_scanned(database: duckdb.DuckDBPyConnection, tables: Tables) -> None:
    """Create the view `scanned`; `facts` must be there, and the labels."""
    sides = [(f"side_{name}", *SIDE[name]) for name in tables.side]
    columns = [f"{view}.{identifier(name)}" for view, _, schema in sides for name in schema.names]
    joins = [f"LEFT JOIN {view} ON {view}.{key} = placed.{key}" for view, key, _ in sides]
    database.execute(f"""CREATE OR REPLACE TEMP TABLE beside AS SELECT {", ".join([*columns, _DECIDED])}
        FROM (SELECT id, sample_id, row_number() OVER () AS place FROM local) AS placed
        LEFT JOIN decisions ON decisions.id = placed.id {" ".join(joins)} ORDER BY place""")
    missing = [column for name, (_, schema) in SIDE.items() if name not in tables.side for column in schema]
    listed = ", ".join(["*", *map(null_column, missing)])
    database.execute(f"CREATE OR REPLACE TEMP VIEW aligned AS SELECT {listed} FROM local POSITIONAL JOIN beside")
    query = "SELECT count(fate), (SELECT count(*) FROM decisions) FROM aligned"
    ((found, decided),) = database.execute(query).fetchall()
    # Decisions on other traces than those with signals are shown as well, at the pace of a join.
    database.execute(
        f"CREATE OR REPLACE TEMP VIEW scanned AS {with_labels('aligned' if found == decided else 'facts')}"
    )
