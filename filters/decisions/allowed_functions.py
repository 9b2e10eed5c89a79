"""The functions of DuckDB that a rule may call: `allowed_functions.toml` lists them, and says what is left out."""

from distill.word_tables import read_table, word_set

ALLOWED = frozenset[str]().union(*map(word_set, read_table(__file__).values()))
NAMES = tuple(sorted(name for name in ALLOWED if name[0].isalpha()))
"""The allowed functions that are names, not operators."""

LOCAL_TYPES = frozenset(
    {"timestamptz", "timestamptz_ns", "timestamp with time zone", "timetz", "time with time zone"}
)
"""What a value of these types says depends on the machine's time zone."""
