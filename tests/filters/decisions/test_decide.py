import re
from functools import partial

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.errors import RecipeError
from distill.recipe.sections.filter import Filter, Mix, Rule, Select
from filters.decisions import decide as policy
from filters.decisions.allowed_functions import ALLOWED, LOCAL_TYPES
from filters.decisions.limits import measure as measure_limits
from filters.decisions.rules import check, check_condition, faulty_expression
from filters.signals.registry import COLUMNS, LOCAL
from filters.tables import signal_database
from filters.tables.signal_database import Tables, empty_database


def rules(**conditions):
    return Filter(rules=tuple(Rule(name=name, drop=drop) for name, drop in conditions.items()))


@pytest.fixture
def table(tmp_path):
    """Writes signal rows over several files; what a row leaves out is NULL."""

    def write(*rows, files=1):
        paths = []
        for number in range(files):
            path = tmp_path / f"part-{number:05d}.parquet"
            found = [{"sample_id": "s", "teacher": "t", "k": 0, **row} for row in rows[number::files]]
            pq.write_table(pa.Table.from_pylist(found, schema=LOCAL), path)
            paths.append(path)
        return Tables(signals=tuple(paths))

    return write


def decide(settings, tables, *, seed=0, **unreadable):
    path = tables.signals[0].with_name("decisions.parquet")
    count = policy.decide(check(settings), settings.select, tables, path, unreadable, seed=seed)
    rows = pq.read_table(path).to_pylist()
    assert len(rows) == count
    return {row["id"]: row for row in rows}


def test_all_failing_rules_are_reported_with_the_values_they_read(table):
    settings = rules(
        incomplete="outcome <> 'complete'",
        long="rationale_tokens > 100 or answer_tokens > 9",
        wrong="not format_valid",
    )
    found = decide(
        settings,
        table(
            {"id": "a", "outcome": "refusal", "rationale_tokens": 200, "answer_tokens": 1, "format_valid": True},
            {"id": "b", "outcome": "complete", "rationale_tokens": 7, "answer_tokens": 1, "format_valid": True},
        ),
    )
    assert found["b"]["kept"] and found["b"]["selected"] and found["b"]["reasons"] == []
    assert not found["a"]["kept"] and not found["a"]["selected"]
    assert [
        (reason["rule"], reason["condition"], orjson.loads(reason["values"])) for reason in found["a"]["reasons"]
    ] == [
        ("incomplete", "outcome <> 'complete'", {"outcome": "refusal"}),
        ("long", "rationale_tokens > 100 or answer_tokens > 9", {"rationale_tokens": 200, "answer_tokens": 1}),
    ]


def test_the_values_of_a_reason_are_json_where_a_number_is_infinite(table):
    rows = [
        {"id": str(n), "answer_relative_error": float(value)} for n, value in enumerate(("inf", "-inf", "nan", 1))
    ]
    found = decide(rules(far="abs(answer_relative_error) > 0.05"), table(*rows, {"id": "t", "teacher": "inf"}))
    values = [orjson.loads(row["reasons"][0]["values"]) for row in list(found.values())[:4]]
    assert [value["answer_relative_error"] for value in values] == ["inf", "-inf", "nan", 1] and found["t"]["kept"]


def test_a_condition_that_is_null_drops_nothing(table):
    found = decide(rules(wrong="answer_verdict = 'wrong'", fuzzy="NULL::boolean"), table({"id": "a"}))
    assert found["a"]["kept"]


def test_without_rules_everything_is_kept(table):
    assert all(row["selected"] for row in decide(Filter(rules=()), table({"id": "a"}, {"id": "b"})).values())


@pytest.mark.parametrize(
    "condition",
    [
        "rationale_tokens between 5 and 9",
        "teacher in ('a', 'b') and k >= 2",
        "case when k > 1 then format_valid else false end",
        "try_cast(majority_answer as double) > 3",
        "lower(answer_reason) like '%text' or regexp_matches(id, '^ab')",
        "OUTCOME <> 'complete' -- said loudly",
        "signals.k > 1",
        "coalesce(repetition_ngram, 1) > 0.5 and nullif(k, 0) is null",
    ],
)
def test_any_expression_over_one_trace_is_a_rule(table, condition):
    decide(rules(r=condition), table({"id": "a", "k": 2}))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("k", "gives bigint, not true or false"),
        ("NULL", "not true or false"),
        ("k >", "not an SQL condition"),
        (" -- all of them", "it is empty; a rule is one condition on one trace"),
        ("", "it is empty"),
        ("k > 1) from signals; drop table signals; select (true", "no other statement"),
        ("true) union select (false", "no other clause"),
        ("true) from signals; select (false", "no other clause"),
        ("true) as one, (false", "no other clause"),
        ("k > (select max(k) from signals)", "subquery is not allowed"),
        ("k in (select 1)", "subquery is not allowed"),
        ("sum(k) over () > 1", "window is not allowed"),
        ("columns(*)", "star is not allowed"),
        ("k > ?", "no other clause|parameter is not allowed"),
        ("count(*) > 1", "function count_star is not known or not allowed"),
        ("max(k) > 1", "function max is not known or not allowed"),
        ("random() < 0.5", "function random is not known or not allowed"),
        ("now() > '2020-01-01'", "function now is not known or not allowed"),
        ("read_text('/etc/hostname') = 'x'", "function read_text is not known or not allowed"),
        ("getenv('HOME') = 'x'", "function getenv is not known or not allowed"),
        ("pg_sleep(1) is null", "function pg_sleep is not known or not allowed"),
        ("age(timestamp '2020-01-01') > interval 9 year", "function age is not known or not allowed"),
        ("pg_postmaster_start_time() is null", "pg_postmaster_start_time is not known or not allowed"),
        ("ago(interval 1 day) is null", "function ago is not known or not allowed"),
        ("system.main.sleep_ms(1) is null", "function sleep_ms is not known or not allowed"),
        ("list_aggregate([k], 'reservoir_quantile', 0.5) > 1", "function list_aggregate is not known or not allowed"),
        ("hash(id) % 2 = 0", "function hash is not known or not allowed"),
        ("levenstein(id, 'x') > 1", "levenstein is not known or not allowed.*nearest allowed one is levenshtein"),
        ("id::timestamptz > '2020-01-01'::timestamptz", "timestamptz depends on the time zone of the machine"),
        ("current_date > '2020-01-01'", "no column 'current_date'"),
        ("k > 'x'", "Could not convert|Conversion"),
        ("outcome + 1 = 2", "No function matches|Binder|Conversion"),
    ],
)
def test_anything_but_a_condition_on_one_trace_is_refused_before_data_is_read(condition, message):
    with pytest.raises(RecipeError, match=f"filter.rules.bad: drop = .*({message})"):
        check(rules(bad=condition))


def test_every_allowed_function_is_in_the_database_and_gives_one_result_for_the_same_values():
    # Times of a zone depend on the machine; their types are refused.
    rows = empty_database(COLUMNS).execute(
        """SELECT lower(function_name), bool_and(function_type = 'macro' OR stability = 'CONSISTENT'
        OR list_has_any(list_transform(parameter_types, lambda each: lower(each)), $1)),
        string_agg(macro_definition, ' ') FROM duckdb_functions()
        WHERE function_type IN ('scalar', 'macro') GROUP BY 1""",
        [list(LOCAL_TYPES)],
    )
    known = {name: (consistent, definition or "") for name, consistent, definition in rows.fetchall()}
    assert sorted(ALLOWED - known.keys()) == []
    assert sorted(name for name in ALLOWED if not known[name][0]) == []
    called = {name: set(re.findall(r'(\w+)"?\(', known[name][1])) - {"CAST"} for name in ALLOWED}
    aggregates = {"list_aggr", "coalesce"}
    assert {
        name: wrong for name in ALLOWED if (wrong := {x.lower() for x in called[name]} - ALLOWED - aggregates)
    } == {}


def test_every_type_whose_values_depend_on_the_time_zone_is_refused():
    rows = empty_database(COLUMNS).execute(
        "SELECT DISTINCT lower(type_name) FROM duckdb_types() "
        "WHERE logical_type LIKE '%WITH TIME ZONE%' OR logical_type LIKE '%TZ%'"
    )
    zoned = {name for (name,) in rows.fetchall()}
    assert zoned and zoned <= LOCAL_TYPES
    for name in zoned:
        with pytest.raises(RecipeError, match="depends on the time zone of the machine"):
            check(rules(bad=f"CAST(teacher AS {name}) IS NULL"))


def test_an_unknown_column_is_named_with_the_nearest_and_the_known_ones():
    with pytest.raises(RecipeError) as caught:
        check(rules(too_long="rationale_token > 500"))
    message = str(caught.value)
    assert message.startswith("filter.rules.too_long: drop = 'rationale_token > 500': no column 'rationale_token'")
    assert "did you mean 'rationale_tokens'?" in message
    assert all(name in message for name in COLUMNS.names)


def test_text_in_double_quotes_is_explained():
    with pytest.raises(RecipeError, match="no column 'zzz'; text is written in single quotes"):
        check(rules(wrong='answer_verdict = "zzz"'))


def test_an_unknown_column_of_the_selection_is_an_error():
    with pytest.raises(RecipeError, match="did you mean 'rationale_tokens'"):
        check(Filter(select=Select(order=("-rationale_tokns",))))


def test_the_toolkits_own_reasons_are_no_rule_names():
    with pytest.raises(RecipeError, match="not_selected"):
        check(rules(not_selected="k > 1"))


def test_a_condition_that_fails_on_the_values_names_its_rule(table):
    with pytest.raises(RecipeError, match=r"filter\.rules\.cast: drop = .*: Conversion Error"):
        decide(rules(fine="k > 5", cast="majority_answer::int > 3"), table({"id": "a", "majority_answer": "many"}))


def test_a_mix_that_fails_on_the_values_names_its_expression_the_value_and_the_next_step(table):
    settings = Filter(
        rules=(Rule(name="fine", drop="k > 5"),),
        select=Select(mix=(Mix(by="majority_answer::int", shares={"1": 1.0}),)),
    )
    with pytest.raises(RecipeError) as caught:
        decide(settings, table({"id": "a", "majority_answer": "many"}))
    message = str(caught.value)
    assert message.startswith("filter.select.mix: by = 'majority_answer::int': Conversion Error")
    assert "'many'" in message and "try_cast(COLUMN AS TYPE)" in message


def test_an_error_that_no_expression_is_to_blame_for_is_raised_as_it_is():
    connection, error = empty_database(COLUMNS), duckdb.OutOfMemoryException("out of memory")
    assert faulty_expression(connection, [("filter.rules.fine: drop", "k > 5")], error) is error


def test_the_advised_cast_works(table):
    by = Mix(by="try_cast(majority_answer AS int)", shares={"1": 0.5})
    settings = Filter(rules=(), select=Select(mix=(by,)))
    found = decide(settings, table({"id": "a", "majority_answer": "many"}, {"id": "b", "majority_answer": "1"}))
    assert all(row["selected"] for row in found.values())


def test_a_selection_of_nothing_is_left_out_by_no_limit(table, tmp_path):
    select = Select(per_question=1, mix=(Mix(by="teacher", shares={"t": 1.0}),), limit=3)
    tables = table({"id": "a", "k": 1})
    decide(Filter(rules=(Rule(name="all", drop="k = 1"),), select=select), tables)
    assert measure_limits(policy.database(tables, tmp_path / "decisions.parquet"), select) == ()


def test_quotes_in_conditions_and_values_survive(table):
    found = decide(rules(quoted="answer_reason = 'it''s'"), table({"id": "a", "answer_reason": "it's"}))
    (reason,) = found["a"]["reasons"]
    assert reason["condition"] == "answer_reason = 'it''s'"
    assert orjson.loads(reason["values"]) == {"answer_reason": "it's"}


def test_the_best_traces_of_a_question_are_selected_and_the_others_say_why_not(table):
    settings = Filter(rules=(), select=Select(per_question=2, order=("near_duplicate", "-rationale_tokens")))
    paths = table(
        {"id": "a", "near_duplicate": False, "rationale_tokens": 5},
        {"id": "b", "near_duplicate": True, "rationale_tokens": 50},
        {"id": "c", "near_duplicate": False, "rationale_tokens": 9},
        {"id": "d", "near_duplicate": False},
        {"id": "e", "sample_id": "other", "near_duplicate": True},
    )
    found = decide(settings, paths)
    assert [id for id, row in found.items() if row["selected"]] == ["a", "c", "e"]
    assert all(row["kept"] for row in found.values())
    (reason,) = found["b"]["reasons"]
    assert (reason["rule"], reason["condition"]) == ("not_selected", "per_question = 2")
    assert orjson.loads(reason["values"]) == {"rank": 4}


def test_a_place_that_a_teachers_limit_frees_goes_to_another_teacher(table):
    settings = Filter(rules=(), select=Select(per_question=2, per_teacher=1, order=("k",)))
    paths = table(
        {"id": "a", "teacher": "x", "k": 0}, {"id": "b", "teacher": "x", "k": 1}, {"id": "c", "teacher": "y", "k": 2}
    )
    found = decide(settings, paths)
    assert [id for id, row in found.items() if row["selected"]] == ["a", "c"]
    assert found["b"]["reasons"][0]["condition"] == "per_teacher = 1"


def test_a_dropped_trace_takes_no_place(table):
    settings = Filter(rules=(Rule(name="r", drop="k = 0"),), select=Select(per_question=1, order=("k",)))
    found = decide(settings, table({"id": "a", "k": 0}, {"id": "b", "k": 1}))
    assert [id for id, row in found.items() if row["selected"]] == ["b"]


def test_ties_fall_to_the_smallest_id_whatever_the_files(table):
    settings = Filter(rules=(), select=Select(per_question=3))
    rows = [{"id": f"{number * 7 % 50:02d}"} for number in range(50)]
    once = decide(settings, table(*rows))
    assert list(once) == sorted(once) and decide(settings, table(*reversed(rows), files=7)) == once
    assert [id for id, row in once.items() if row["selected"]] == ["00", "01", "02"]


def test_questions_whose_image_is_gone_are_dropped_for_that(table):
    found = decide(rules(r="k > 5"), table({"id": "a"}, {"id": "b", "sample_id": "x", "k": 9}), x="missing_image")
    assert found["a"]["selected"]
    assert [reason["rule"] for reason in found["b"]["reasons"]] == ["r", "unreadable_image"]
    assert orjson.loads(found["b"]["reasons"][1]["values"]) == {"reason": "missing_image"}


def test_a_mix_has_its_shares_and_says_what_it_left_out(table):
    shares = Select(mix=(Mix(by="rationale_tokens > 100", shares={"true": 0.2, "false": 0.8}),))
    rows = [{"id": f"{n:03d}", "sample_id": f"s{n}", "rationale_tokens": 10 * n} for n in range(30)]
    found = decide(Filter(rules=(), select=shares), table(*rows))
    chosen = [int(name) for name, row in found.items() if row["selected"]]
    assert (sum(n > 10 for n in chosen), sum(n <= 10 for n in chosen)) == (3, 10)
    assert all(row["kept"] for row in found.values())
    (reason,) = next(row for name, row in found.items() if name > "010" and not row["selected"])["reasons"]
    assert (reason["rule"], reason["condition"]) == ("not_selected", "mix: 3 of rationale_tokens > 100 = true")


def test_a_limit_takes_a_random_part_that_the_seed_chooses(table):
    settings = Filter(rules=(), select=Select(limit=20))
    rows = [{"id": f"{n:03d}", "sample_id": f"s{n}"} for n in range(100)]
    found = [decide(settings, table(*rows, files=files), seed=seed) for seed, files in ((0, 1), (0, 7), (1, 1))]
    chosen = [{name for name, row in table.items() if row["selected"]} for table in found]
    assert chosen[0] == chosen[1] != chosen[2] and len(chosen[0]) == len(chosen[2]) == 20
    assert max(chosen[0]) > "050"


def test_without_a_seed_the_part_is_that_of_seed_zero(table, tmp_path):
    settings = Filter(rules=(), select=Select(limit=20))
    tables = table(*({"id": f"{n:03d}", "sample_id": f"s{n}"} for n in range(100)))
    policy.decide(check(settings), settings.select, tables, tmp_path / "unseeded.parquet")
    unseeded = pq.read_table(tmp_path / "unseeded.parquet").to_pylist()
    assert unseeded == list(decide(settings, tables, seed=0).values())


def test_a_mix_by_a_value_that_is_not_measured_counts_it_as_null(table):
    shares = Select(mix=(Mix(by="difficulty", shares={"hard": 0.5, "null": 0.5}),))
    found = decide(
        Filter(rules=(), select=shares), table({"id": "a"}, {"id": "b"}, {"id": "c", "difficulty": "hard"})
    )
    assert sum(row["selected"] for row in found.values()) == 2 and found["c"]["selected"]


@pytest.mark.parametrize("by", ["nothing", "count(*)", "random()", "k >", "(select 1)"])
def test_a_mix_by_anything_but_an_expression_on_one_trace_is_refused(by):
    with pytest.raises(RecipeError, match=r"filter\.select\.mix: by = "):
        check(Filter(select=Select(mix=(Mix(by=by, shares={"a": 1.0}),))))


@pytest.mark.parametrize("shares", [{}, {"a": 0.7, "b": 0.4}, {"a": -0.1}])
def test_shares_add_up_to_at_most_one(shares):
    with pytest.raises(ValueError, match=r"shares (are|must be) numbers"):
        Mix(by="teacher", shares=shares)


@pytest.mark.parametrize("select", [Select(per_question=2), Select(limit=11, per_teacher=1)])
def test_sorting_in_parts_changes_nothing(table, monkeypatch, select):
    rows = [
        {"id": f"{n * 2654435761 % (1 << 32):08x}", "sample_id": f"{n % 17 * 2654435769 % (1 << 32):08x}", "k": n % 3}
        for n in range(80)
    ]
    settings = Filter(rules=(Rule(name="r", drop="k = 2"),), select=select)
    whole = decide(settings, table(*rows, files=3))
    take_at_once(monkeypatch, 7)
    parts = decide(settings, table(*rows, files=3))
    assert parts == whole and list(parts) == sorted(parts) and len(parts) == 80


def take_at_once(monkeypatch: pytest.MonkeyPatch, traces: int) -> None:
    """Let so many traces be sorted at a time."""
    for name in ("ranges", "range_borders"):
        monkeypatch.setattr(policy, name, partial(getattr(signal_database, name), at_once=traces))


@pytest.mark.parametrize("at_once", [7, 80])
def test_decisions_on_each_file_are_merged_into_those_on_all(table, tmp_path, monkeypatch, at_once):
    rows = [{"id": f"{n * 2654435761 % (1 << 32):08x}", "sample_id": f"{n:08x}", "k": n % 3} for n in range(80)]
    conditions, select, tables = check(rules(r="k = 2")), Select(), table(*rows, files=3)
    take_at_once(monkeypatch, at_once)
    whole, merged = tmp_path / "whole.parquet", tmp_path / "merged.parquet"
    policy.decide(conditions, select, tables, whole)
    parts = [tmp_path / f"decided-{number}.parquet" for number in range(3)]
    for part, signals in zip(parts, tables.signals, strict=True):
        policy.decide(conditions, select, Tables(signals=(signals,)), part)
    assert policy.merge(parts, merged) == 80
    assert merged.read_bytes() == whole.read_bytes()
    assert pq.read_metadata(whole).num_row_groups == -(-80 // at_once)


def test_a_rule_that_compares_one_column_with_a_number_says_its_threshold():
    given = {
        "long": "rationale_tokens > 1_000",
        "mirrored": "0.5 <= repetition_tail",
        "text": "answer_verdict > 'a'",
        "two": "rationale_tokens > answer_tokens",
        "both": "rationale_tokens > 5 AND rationale_tokens < 9",
    }
    found = {each.name: each.threshold for each in check(rules(**given))}
    shown = {name: (limit.column, limit.operator, limit.number) for name, limit in found.items() if limit is not None}
    assert shown == {"long": ("rationale_tokens", ">", 1000.0), "mirrored": ("repetition_tail", ">=", 0.5)}


def test_a_condition_on_the_page_is_true_or_false():
    check_condition("k = 1", LOCAL)
    with pytest.raises(RecipeError, match=r"condition = 'k \+ 1': gives .*, not true or false"):
        check_condition("k + 1", LOCAL)
