"""The verb: what is asked, what is kept, what a rerun does."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import stub_server
from students import tiny_models
from worlds.generate_world import World, asked_of

from distill.artifacts.files import file_sha256
from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.data.sample_files import read_samples
from distill.errors import CircuitOpen, DataError, RecipeError, StaleError, TeacherError
from distill.types import ImageRef, Progress
from teacher.engines.image_parts import ImageParts


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build(tmp_path_factory.mktemp("model"), hidden=32, layers=1, end_weight=3.0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_every_sample_is_answered_as_often_as_asked_and_the_manifest_says_so(world: World, url: str) -> None:
    world.add_rows(20)
    world.add_teacher(url, samples=3)
    seen: list[Progress] = []
    manifest = world.generate(on_progress=seen.append)
    records = world.records()
    assert world.ids() == world.planned() and len(records) == 60
    assert manifest == Manifest.read(world.run / "generate")
    assert manifest.counts["samples"] == 20
    assert manifest.counts["traces"] == manifest.counts["complete"] == manifest.counts["stub.complete"] == 60
    assert manifest.tokens == {"prompt": 1800, "image": 960, "reasoning": 1260, "answer": 120, "stub.output": 1380}
    assert manifest.versions["vllm"] == "0.0-stub"
    for name, output in manifest.outputs.items():
        assert file_sha256(world.run / "generate" / name) == output.sha256
    assert manifest.outputs["stub/part-00000.jsonl"].count == 60
    assert (seen[-1].done, seen[-1].total, seen[-1].facts["complete"]) == (60, 60, 60)


def test_images_are_read_while_the_requests_before_them_are_on_their_way(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    part = ImageParts.part

    async def watched(self: ImageParts, ref: ImageRef) -> bytes:
        if ref.sha256 not in self._ready:
            waited.append(ref.sha256)
        return await part(self, ref)

    monkeypatch.setattr(ImageParts, "part", watched)
    world.add_rows(12, images=12)
    world.add_teacher(url, images="base64", max_in_flight=1)
    world.generate()
    assert len(waited) == 1


def test_a_record_holds_all_that_the_contract_names(world: World, url: str) -> None:
    world.add_rows(1)
    world.add_teacher(url, revision="abc")
    world.generate()
    (record,) = world.records()
    names = "id sample_id teacher k seed reasoning answer text outcome finish_reason usage params model revision "
    names += "engine prompt_sha latency_s created attempt draft hinted error"
    assert set(record) == set(names.split())
    (sample,) = read_samples(world.run / "generate" / "samples.parquet")
    assert record["sample_id"] == sample.id
    assert (record["model"], record["revision"], record["engine"]["name"]) == ("stub", "abc", "vllm")
    assert record["usage"] == {"prompt": 30, "image": 16, "reasoning": 21, "answer": 2}
    assert record["params"]["temperature"] == 0.8 and record["params"]["max_tokens"] == 16
    assert record["text"] == f"<think>\n{record['reasoning']}\n</think>\n\n{record['answer']}"


def test_a_finished_stage_is_returned_at_once_without_server_or_torch(world: World) -> None:
    world.add_rows(5)
    with stub_server.serve() as url:
        world.add_teacher(url)
        first = world.generate()
    script = (
        "import sys; from distill.recipe import load; from teacher.generate import generate;"
        f"m = generate(load({str(world.folder / 'recipe.toml')!r}), {str(world.run)!r});"
        "print(m.created, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [first.created, "False"]
    world.source = "gone.jsonl"
    with pytest.raises(DataError, match="does not exist"):
        world.generate()


def test_appended_rows_are_the_only_ones_asked(world: World) -> None:
    world.add_rows(10)
    with stub_server.serve() as url:
        world.add_teacher(url)
        world.generate()
        before = world.records()
        world.rows.reverse()
        world.add_rows(4)
        manifest = world.generate()
        assert asked_of(url) == 14
    assert world.records()[:10] == before
    assert manifest.counts["complete"] == 14


def test_other_settings_are_refused_by_name_and_with_fresh_only_what_changed_is_asked(world: World) -> None:
    world.add_rows(6)
    with stub_server.serve() as url:
        world.add_teacher(url, "one")
        world.add_teacher(url, "two", prompt="Briefly: {question}")
        world.generate()
        world.teachers[1]["prompt"] = "At length: {question}"
        with pytest.raises(StaleError, match="--fresh") as caught:
            world.generate()
        assert "teachers.two.prompt: 'Briefly: {question}' -> 'At length: {question}'" in str(caught.value)
        assert asked_of(url) == 12
        manifest = world.generate(fresh=True)
        assert asked_of(url) == 18
        assert manifest.counts["traces"] == 12 and len(world.records()) == 18
        assert set(world.planned()) < set(world.ids())
        world.teachers[1]["prompt"] = "Briefly: {question}"
        world.generate(fresh=True)
        assert asked_of(url) == 18


def test_settings_of_the_connection_make_nothing_stale(world: World, url: str) -> None:
    world.add_rows(2)
    world.add_teacher(url)
    first = world.generate()
    world.teachers[0] |= {"max_in_flight": 3, "timeout_s": 7.0, "base_url": "http://127.0.0.1:9/v1"}
    assert world.generate() == first


def test_a_changed_image_is_asked_about_again_and_no_other(world: World) -> None:
    world.add_rows(6, images=6)
    with stub_server.serve() as url:
        world.add_teacher(url)
        world.generate()
        tiny_models.make_image(world.folder / "2.png", 99, size=16)
        world.generate()
        assert asked_of(url) == 7


def test_another_way_of_splitting_parses_again_without_asking(world: World) -> None:
    world.add_rows(3)
    with stub_server.serve() as url:
        world.add_teacher(url)
        world.generate()
        raw = {record["id"]: record["text"] for record in world.records()}
        world.teachers[0]["reasoning"] = "none"
        world.generate(fresh=True)
        assert asked_of(url) == 3
    assert {record["id"]: record["answer"] for record in world.records()} == raw


def test_domains_route_to_their_teachers_and_a_domain_without_one_is_set_aside(world: World, url: str) -> None:
    for domain, count in (("scenes", 4), ("charts", 3), ("maps", 2)):
        world.add_rows(count, domain=domain)
    world.add_teacher(url, "painter", domains=["scenes"])
    world.add_teacher(url, "analyst", domains=["charts"], samples=2)
    manifest = world.generate()
    assert Counter(record["teacher"] for record in world.records()) == {"painter": 4, "analyst": 6}
    reasons = Counter(row["reason"] for row in read_jsonl(world.run / "generate" / "quarantine.jsonl"))
    assert reasons == {"no_teacher": 2}
    assert manifest.counts["quarantined"] == manifest.counts["quarantined.no_teacher"] == 2
    assert manifest.counts["samples"] == 7


def test_unreadable_rows_are_set_aside_with_their_reason_and_looked_at_again(world: World, url: str) -> None:
    world.add_rows(9)
    world.rows[4]["image"] = "missing.png"
    world.add_teacher(url)
    manifest = world.generate()
    assert manifest.counts["quarantined.missing_image"] == 1 and manifest.counts["complete"] == 8
    tiny_models.make_image(world.folder / "missing.png", 50, size=16)
    manifest = world.generate()
    assert manifest.counts["quarantined"] == 0 and manifest.counts["complete"] == 9


def test_limit_spreads_over_domains_by_content_and_more_can_follow(world: World) -> None:
    for domain, count in (("scenes", 30), ("charts", 30), ("digits", 2)):
        world.add_rows(count, domain=domain)
    with stub_server.serve() as url:
        world.add_teacher(url)
        world.generate(limit=8)
        chosen = list(read_samples(world.run / "generate" / "samples.parquet"))
        assert Counter(sample.domain for sample in chosen) == {"scenes": 3, "charts": 3, "digits": 2}
        random.Random(1).shuffle(world.rows)
        world.generate(limit=8)
        again = {sample.id for sample in read_samples(world.run / "generate" / "samples.parquet")}
        assert again == {sample.id for sample in chosen}
        assert asked_of(url) == 8
        world.generate()
        assert asked_of(url) == 62


def test_planted_faults_cost_their_own_rows_and_are_counted(world: World, url: str) -> None:
    world.add_rows(40)
    for fault in ("fault=400", "fault=500", "fault=garbage", "fault=hang", "fault=disconnect", "fault=empty"):
        world.add_rows(1, text=fault)
    world.add_rows(4, text="fault=500x1")
    world.add_teacher(url, max_retries=1, timeout_s=0.5)
    manifest = world.generate()
    outcomes = Counter(record["outcome"] for record in world.records())
    assert outcomes == {"complete": 44, "error": 5, "empty_answer": 2}  # asked twice, with another seed
    assert manifest.counts["empty_answer"] == manifest.counts["repeated"] == 1
    assert manifest.counts["error"] == 5 and manifest.counts["errors_to_ask_again"] == 4
    classes = {record["error"].partition(":")[0] for record in world.records() if record["error"]}
    assert classes == {"refused_request", "server_error", "garbled_response", "timeout", "connection"}


def test_errors_that_may_pass_are_asked_again_and_leave_no_double(world: World) -> None:
    world.add_rows(5)
    world.add_rows(1, text="fault=500x2")
    world.add_rows(1, text="fault=400")
    with stub_server.serve() as url:
        world.add_teacher(url, max_retries=0)
        first = world.generate()
        assert first.counts["error"] == 2
        second = world.generate()
    assert second.counts["complete"] == 6 and second.counts["error"] == 1
    assert world.ids() == world.planned()
    assert world.generate() == second


def test_a_finished_stage_with_errors_does_not_need_its_server(world: World) -> None:
    world.add_rows(3)
    world.add_rows(1, text="fault=500")
    with stub_server.serve() as url:
        world.add_teacher(url, max_retries=0)
        first = world.generate()
    assert first.counts["errors_to_ask_again"] == 1
    assert world.generate() == first


def test_teachers_whose_servers_run_one_after_the_other_finish_one_run(world: World) -> None:
    world.add_rows(4)
    with stub_server.serve(model="first") as url:
        world.add_teacher(url, "one", model="first")
        world.add_teacher("http://127.0.0.1:9/v1", "two", model="second")
        with pytest.raises(CircuitOpen, match=r"teachers\.two: no answer from http://127\.0\.0\.1:9/v1") as caught:
            world.generate()
    assert "4 traces are finished and kept" in str(caught.value)
    assert Manifest.read(world.run / "generate") is None
    with stub_server.serve(model="second") as url:
        world.teachers[1]["base_url"] = url
        assert world.generate().counts["complete"] == 8


def test_a_server_that_fails_everything_opens_the_circuit_and_a_healthy_one_finishes(world: World, url: str) -> None:
    world.add_rows(150)
    with stub_server.serve(fail_all=500) as broken:
        world.add_teacher(broken, max_retries=0)
        with pytest.raises(CircuitOpen, match="no request has succeeded for"):
            world.generate()
    assert world.records() == []
    assert Manifest.read(world.run / "generate") is None
    world.teachers[0]["base_url"] = url
    assert world.generate().counts["complete"] == 150
    assert world.ids() == world.planned()


def test_a_small_run_in_which_everything_fails_blames_no_row_and_stops_with_3(world: World) -> None:
    world.add_rows(5)
    with stub_server.serve(fail_all=500) as broken:
        world.add_teacher(broken, max_retries=0)
        with pytest.raises(CircuitOpen, match="HTTP 500: everything fails"):
            world.generate()
    assert world.records() == [] and Manifest.read(world.run / "generate") is None


def test_a_teacher_whose_requests_all_fail_says_the_first_error(world: World, url: str) -> None:
    world.add_rows(2)
    world.rows = [row | {"question": f"{row['question']} fault=400"} for row in world.rows]
    world.add_teacher(url)
    with pytest.raises(
        TeacherError, match=r"all \d+ requests failed; the first: refused_request: HTTP 400.*; the reas"
    ):
        world.generate()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"domains": ["scense"]}, RecipeError, r"did you mean 'scenes'.*; correct this key, or the values of \[data"),
        ({"backend": "openai", "base_url": "http://127.0.0.1:9/v1"}, CircuitOpen, "no answer from"),
    ],
)
def test_wrong_input_is_reported_before_anything_is_asked(
    world: World, url: str, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    world.add_rows(3, domain="scenes")
    world.add_teacher(**{"url": url, **{key: value for key, value in change.items() if key != "base_url"}})
    if "base_url" in change:
        world.teachers[0]["base_url"] = change["base_url"]
        world.teachers[0] = {key: value for key, value in world.teachers[0].items() if value is not None}
    with pytest.raises(error, match=message):
        world.generate()


def test_a_recipe_without_teachers_or_with_the_same_one_twice_is_refused(world: World, url: str) -> None:
    world.add_rows(1)
    with pytest.raises(RecipeError, match="no \\[\\[teachers\\]\\]"):
        world.generate()
    world.add_teacher(url, "one")
    world.add_teacher(url, "two")
    with pytest.raises(RecipeError, match="one and two have the same model, prompt, settings and samples"):
        world.generate()


def test_a_source_that_becomes_unusable_leaves_the_finished_stage_as_it_was(world: World, url: str) -> None:
    world.add_rows(4)
    world.add_teacher(url)
    first = world.generate()
    for row in world.rows:
        row["image"] = "missing.png"
    with pytest.raises(DataError):
        world.generate()
    assert Manifest.read(world.run / "generate") == first
    for name, output in first.outputs.items():
        assert file_sha256(world.run / "generate" / name) == output.sha256


def test_an_embedded_teacher_answers_and_resumes_over_http_identity(world: World, model: Path) -> None:
    world.add_rows(6)
    world.add_teacher(None, "tiny", model=str(model), backend="embedded", samples=2, max_in_flight=4)
    manifest = world.generate()
    assert manifest.counts["traces"] == 12 and set(world.planned()) <= set(world.ids())
    assert "transformers" in manifest.versions
    assert all(record["usage"]["prompt"] > 16 for record in world.records())
    ids = world.planned()
    world.teachers[0] |= {"backend": "vllm", "base_url": "http://127.0.0.1:9/v1"}
    assert world.generate() == manifest
    assert world.planned() == ids


def test_journals_roll_over_into_parts(world: World, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teacher.store.trace_journal.PART_RECORDS", 10)
    world.add_rows(25)
    world.add_teacher(url)
    manifest = world.generate()
    counts = [output.count for name, output in manifest.outputs.items() if "/part-" in name]
    assert counts == [10, 10, 5]
    assert world.ids() == world.planned()
