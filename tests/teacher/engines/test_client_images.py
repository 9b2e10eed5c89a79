"""Images of requests: sent by path or inside the request, prepared once, looked at again, missing ones."""

import asyncio
import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from PIL import Image
from servers import stub_server
from servers.client_helpers import answers, asked, seen, teacher
from students import tiny_models

from distill.data.images.image_files import sha256
from distill.types import ImageRef
from teacher.engines import image_parts
from teacher.engines.image_folders import Folders, UnreadableError


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


def test_a_body_holds_images_first_and_every_sampling_value_for_vllm(url: str, tmp_path: Path) -> None:
    path = tiny_models.make_image(tmp_path / "a.png", 0)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    sampling = {"temperature": 0.5, "max_tokens": 7, "stop": ["END"]}
    settings = {"chat_template_kwargs": {"enable_thinking": True}, "images": "base64"}
    who = teacher(url, system="Be brief.", sampling=sampling, **settings)
    with stub_server.serve() as fresh:
        who = who.model_copy(update={"base_url": fresh})
        (request,) = asked(who, "How many?", images=(ref,))
        answers(who, [request])
        (body,) = seen(fresh)["bodies"]
    image, text = body["messages"][1]["content"]
    assert base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,")) == path.read_bytes()
    assert text == {"type": "text", "text": "How many?"}
    assert body["messages"][0] == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    del body["messages"]
    assert body == {
        "model": "stub",
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": request.seed,
        "temperature": 0.5,
        "max_tokens": 7,
        "stop": ["END"],
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "repetition_detection": {"max_pattern_size": 16, "min_pattern_size": 1, "min_count": 32},
        "chat_template_kwargs": {"enable_thinking": True},
    }


def test_an_image_that_vanished_is_the_rows_error(url: str, tmp_path: Path) -> None:
    who = teacher(url)
    tiny_models.make_image(tmp_path / "neighbour.png", 0)
    gone = ImageRef(sha256="00", path=str(tmp_path / "gone.png"))
    found = answers(who, asked(who, "a", "b", images=(gone,)) + asked(who, "c"))
    assert Counter(done.error[:21] for done in found.values()) == {"image: missing_image:": 2, "": 1}


@pytest.mark.parametrize("way", ["base64", "auto"])
def test_an_image_shared_by_many_samples_is_read_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    who = teacher(url, samples=10, images=way)
    from distill.data.images import image_files

    path = tiny_models.make_image(tmp_path / "a.png", 0)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    reads: list[ImageRef] = []
    original = image_files.read_bytes
    monkeypatch.setattr(image_files, "read_bytes", lambda wanted: (reads.append(wanted), original(wanted))[1])
    answers(who, asked(who, "a", "b", images=(ref,)))
    assert len(reads) == 1


def test_images_go_by_path_where_the_server_reads_files_and_inside_the_request_where_not(tmp_path: Path) -> None:
    path = tiny_models.make_image(tmp_path / "a picture.png", 0)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    sent = {}
    for allowed in (tmp_path, ""):
        with stub_server.serve(allowed_local_media_path=allowed) as url:
            who = teacher(url)
            (done,) = answers(who, asked(who, "How many?", images=(ref,))).values()
            assert not done.error
            sent[bool(allowed)] = [body["messages"][0]["content"][0] for body in seen(url)["bodies"]]
    (by_path,) = sent[True]
    assert by_path["image_url"]["url"] == path.as_uri() and "%20" in path.as_uri()
    tried, inside = sent[False]
    assert tried["image_url"] == by_path["image_url"]
    assert inside["image_url"]["url"].startswith("data:image/png;base64,")
    assert tried["uuid"] == inside["uuid"] == by_path["uuid"]


def ways(url: str) -> list[str]:
    """How the image of each request went, in the order of the requests."""
    urls = [body["messages"][0]["content"][0]["image_url"]["url"] for body in seen(url)["bodies"]]
    return ["path" if each.startswith("file://") else "inside" for each in urls]


def test_one_request_shows_whether_paths_can_be_read_and_the_others_do_not_wait_for_it(tmp_path: Path) -> None:
    path = tiny_models.make_image(tmp_path / "a.png", 0)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    with stub_server.serve(latency_s=0.2) as url:
        who = teacher(url)
        done = answers(who, asked(who, *map(str, range(20)), images=(ref,)))
        assert not any(each.error for each in done.values())
        assert sorted(ways(url)) == ["inside"] * 20 + ["path"]
    with stub_server.serve(allowed_local_media_path=tmp_path) as url:
        who = teacher(url, max_in_flight=2)
        answers(who, asked(who, *map(str, range(20)), images=(ref,)))
        assert ways(url)[0] == "path" and ways(url).count("inside") <= 2 and ways(url)[4:] == ["path"] * 16


def test_a_request_that_fails_for_another_reason_does_not_show_whether_paths_can_be_read(tmp_path: Path) -> None:
    path = tiny_models.make_image(tmp_path / "a.png", 0)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    with stub_server.serve(allowed_local_media_path=tmp_path) as url:
        who = teacher(url, max_in_flight=1)
        answers(who, asked(who, "fault=500x1", "b", "c", images=(ref,)))
        assert ways(url) == ["path"] * 4


def test_a_request_that_is_not_sent_does_not_keep_another_from_showing_whether_paths_can_be_read(
    url: str, tmp_path: Path
) -> None:
    path = tiny_models.make_image(tmp_path / "a.png", 0)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    cache = image_parts.ImageParts(teacher(url), Folders(patience_s=0.5), max_pixels=10**8, urls=(url,))

    async def run() -> None:
        assert b'"file://' in await cache.part(ref)
        assert b'"file://' not in await cache.part(ref)
        with pytest.raises(UnreadableError):
            await cache.part(ImageRef(sha256="0", path=str(tmp_path / "missing.png")))
        assert b'"file://' in await cache.part(ref)

    asyncio.run(run())


def test_images_that_cannot_be_read_do_not_pile_up_in_memory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_parts, "_CACHE_BYTES", 10 * image_parts._ENTRY_BYTES)
    cache = image_parts.ImageParts(teacher(url), Folders(patience_s=0.5), max_pixels=10**8, media_root=Path("/"))

    async def run() -> None:
        for number in range(50):
            with pytest.raises(UnreadableError):
                await cache.part(ImageRef(sha256=str(number), path=str(tmp_path / f"{number}.png")))

    asyncio.run(run())
    assert not cache._ready and not cache._weights


def test_a_image_is_looked_at_again_a_while_after_it_was_read_and_not_before(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[ImageRef] = []
    cache = image_parts.ImageParts(
        teacher(url, images="base64"), Folders(patience_s=0.5), max_pixels=10**8, urls=(url,)
    )
    monkeypatch.setattr(cache, "_changed", lambda refs: looks.extend(refs) or [])
    monkeypatch.setattr(image_parts, "_LOOK_AGAIN_S", 0.5)
    path = tmp_path / "1.png"
    tiny_models.make_image(path, 1, size=8)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))

    async def run() -> None:
        await asyncio.gather(*(cache.part(ref) for _ in range(5)))
        await cache.part(ref)
        assert looks == []
        await asyncio.sleep(0.6)
        await cache.part(ref)
        assert looks == [ref]

    asyncio.run(run())


def ahead_of(tmp_path: Path, count: int, url: str) -> tuple[image_parts.ImageParts, list[ImageRef]]:
    """A cache that knows that all of these images come next."""
    refs = []
    for number in range(count):
        path = tiny_models.make_image(tmp_path / f"{number}.png", number, size=8)
        refs.append(ImageRef(sha256=sha256(path.read_bytes()), path=str(path)))
    cache = image_parts.ImageParts(
        teacher(url, images="base64"),
        Folders(patience_s=0.5),
        max_pixels=10**8,
        urls=(url,),
        upcoming=lambda samples: refs[:samples],
    )
    return cache, refs


def test_one_call_looks_at_the_images_of_all_next_requests(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, refs = ahead_of(tmp_path, 20, url)
    changed, looks = cache._changed, list[int]()

    def counted(refs: Sequence[ImageRef]) -> list[ImageRef]:
        looks.append(len(refs))
        return changed(refs)

    async def run() -> set[str]:
        for ref in refs:
            await cache.part(ref)
        await read_to_the_end(cache)
        before = {ref.sha256: await cache.part(ref) for ref in refs}
        monkeypatch.setattr(cache, "_changed", counted)
        monkeypatch.setattr(cache, "_look_again", dict.fromkeys(cache._ready, 0.0))
        tiny_models.make_image(Path(refs[7].path), 99, size=8)
        Path(refs[11].path).unlink()
        parts = await asyncio.gather(*map(cache.part, refs), return_exceptions=True)
        return {ref.path for ref, part in zip(refs, parts, strict=True) if part != before[ref.sha256]}

    assert asyncio.run(run()) == {refs[7].path, refs[11].path}  # they are read again, and refused
    assert looks == [20]


async def read_to_the_end(cache: image_parts.ImageParts) -> None:
    await asyncio.gather(*cache._ready.values(), return_exceptions=True)
    await asyncio.sleep(0)  # the entries are weighed


def test_images_prepared_ahead_leave_room_for_those_in_use(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_parts, "_AHEAD_EACH", 4)
    monkeypatch.setattr(image_parts, "_AHEAD_BYTES", 6 * image_parts._ENTRY_BYTES)
    cache, refs = ahead_of(tmp_path, 40, url)

    async def run() -> list[int]:
        started = []
        for _ in range(2):
            for _ in range(4):
                await cache.part(refs[0])
            started.append(len(cache._ready))
            await read_to_the_end(cache)
        return started

    assert asyncio.run(run()) == [4, 5]  # at first by number, then by what an image takes


def test_nothing_is_read_ahead_while_images_cannot_be_read(url: str, tmp_path: Path) -> None:
    cache, refs = ahead_of(tmp_path, 3, url)
    for ref in refs:
        Path(ref.path).rename(f"{ref.path}.away")

    async def run() -> None:
        with pytest.raises(UnreadableError):
            await cache.part(refs[0])
        await read_to_the_end(cache)
        assert not cache._ready
        cache._asked = 0
        with pytest.raises(UnreadableError):
            await cache.part(refs[0])
        assert not cache._ready
        for ref in refs:
            Path(f"{ref.path}.away").rename(ref.path)
        await cache.part(refs[0])
        cache._asked = 0
        await cache.part(refs[0])
        assert set(cache._ready) == {ref.sha256 for ref in refs}

    asyncio.run(run())


def test_an_image_outside_the_folder_that_a_server_may_read_goes_inside_the_request(url: str, tmp_path: Path) -> None:
    """vLLM refuses every path that is not below --allowed-local-media-path, links resolved."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for folder in (root, elsewhere):
        folder.mkdir()
        Image.new("RGB", (4, 4), "red").save(folder / "a.png")
    (root / "link.png").symlink_to(elsewhere / "a.png")
    parts = image_parts.ImageParts(teacher(url), Folders(patience_s=0.5), max_pixels=100, media_root=root)
    digest = sha256((root / "a.png").read_bytes())

    async def sent(path: Path) -> bytes:
        parts._ready.clear()
        return await parts.part(ImageRef(sha256=digest, path=str(path)))

    assert b'"file://' in asyncio.run(sent(root / "a.png"))
    assert b'"data:' in asyncio.run(sent(elsewhere / "a.png"))
    assert b'"data:' in asyncio.run(sent(root / "link.png"))
