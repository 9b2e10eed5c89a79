"""Kept images are what the student's processor makes of them, to the bit, wherever they are kept."""

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from worlds import student_worlds as worlds

from distill.data.images import image_files
from distill.errors import ImageError
from distill.types import ImageRef
from student.data import images as student_images
from student.data.disk_cache import DATA, INDEX, DiskCache

PIXELS = 10**6
OFF: dict[str, int] = {"memory_bytes": 0}
DISK = {"memory_bytes": 0, "disk_bytes": 10**9}
SIZES = ((30, 44), (64, 64), (44, 30), (120, 40))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def refs(tmp_path_factory: pytest.TempPathFactory) -> list[ImageRef]:
    """Noise in several sizes, two images a size; every value of eight bits occurs."""
    folder = tmp_path_factory.mktemp("noise")
    return [noise(folder / f"{number}.png", SIZES[number % 4], number) for number in range(8)]


def noise(path: Path, size: tuple[int, int], seed: int) -> ImageRef:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(values).save(path)
    return ImageRef(sha256=image_files.sha256(path.read_bytes()), path=str(path))


def planned(processor, refs, dtype=torch.float32, **settings) -> student_images.ImageStore:
    store = student_images.ImageStore(processor, dtype, **settings)
    store.prepare(refs, PIXELS)
    return store


def made_of(processor, path):
    """What a processor makes of an image and its placeholder."""
    return processor(text=student_images.image_token(processor), images=[Image.open(path)], return_tensors="pt")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_kept_pixels_are_eight_bits_and_become_the_processors_own_output(kind, dtype, world, refs):
    _, processor = worlds.student(kind, world)
    store = planned(processor, refs, dtype)
    for ref in refs:
        made = made_of(processor, ref.path)
        expected = made["pixel_values"].to(dtype)
        kept = store.features(ref, PIXELS)
        assert kept["pixel_values"].dtype == torch.uint8
        joined = store.join([kept])
        assert torch.equal(joined["pixel_values"].flatten(), expected.flatten())
        assert joined["pixel_values"].dtype == dtype
        if "image_grid_thw" in made:
            assert torch.equal(joined["image_grid_thw"], made["image_grid_thw"])


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_a_batch_is_the_images_one_after_the_other(kind, world, refs):
    _, processor = worlds.student(kind, world)
    store = planned(processor, refs)
    batch = store.join([store.features(ref, PIXELS) for ref in refs])
    alone = [store.join([store.features(ref, PIXELS)]) for ref in refs]
    for name, values in batch.items():
        assert torch.equal(values, torch.cat([one[name] for one in alone]))


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_pixels_that_go_to_the_device_in_eight_bits_are_normalised_there_to_the_same_values(kind, world, refs):
    _, processor = worlds.student(kind, world)
    store = planned(processor, refs, torch.bfloat16)
    some = [store.features(refs[0], 10**6) for _ in range(2)]
    direct, raw = store.join(some), store.join(some, raw=True)
    sizes = [inputs["pixel_values"].element_size() for inputs in (raw, direct)]
    assert sizes == [1, 2]
    later = store.normalised({**raw, "input_ids": torch.zeros(1)})
    assert later.pop("input_ids").numel() == 1
    assert later.keys() == direct.keys()
    assert all(torch.equal(later[name], direct[name]) for name in direct)
    meta = store.normalised({name: value.to("meta") for name, value in raw.items()})
    assert meta["pixel_values"].is_meta and meta["pixel_values"].shape == direct["pixel_values"].shape


def test_no_image_gives_no_input(world):
    _, processor = worlds.student("siq-vl", world)
    assert student_images.ImageStore(processor, torch.float32).join([]) == {}


def test_tiles_of_different_sizes_are_padded_with_zeros_after_normalising(world, refs):
    _, processor = worlds.student("siq-vl", world)
    store = planned(processor, refs[:1])
    small, large = torch.full((1, 1, 3, 4, 6), 9, dtype=torch.uint8), torch.ones(2, 1, 3, 8, 2, dtype=torch.uint8)
    joined = store.join([{"pixel_values": small}, {"pixel_values": large}])
    assert joined["pixel_values"].shape == (3, 1, 3, 8, 6)
    assert joined["pixel_attention_mask"].flatten(1).sum(1).tolist() == [24, 16, 16]
    masked = joined["pixel_attention_mask"][:, :, None].expand_as(joined["pixel_values"]) == 0
    assert bool((joined["pixel_values"][masked] == 0).all()) and bool((joined["pixel_values"][~masked] < 0).all())


class Brightening:
    """An image processor that does more than rescale and normalise."""

    def __init__(self, images):
        self._images = images

    def __getattr__(self, name):
        return getattr(self._images, name)

    def __call__(self, images, **options):
        made = self._images(images=images, **options)
        values = torch.as_tensor(np.asarray(made["pixel_values"]))
        made["pixel_values"] = values * 1.01 if values.is_floating_point() else values
        return made


@pytest.mark.parametrize("settings", [{}, {"memory_bytes": 0, "disk_bytes": 10**9}])
def test_a_processor_that_is_not_reproduced_by_a_table_keeps_its_own_output(settings, world, refs, tmp_path):
    _, processor = worlds.student("llava", world)
    expected = Brightening(processor.image_processor)(images=[Image.open(refs[0].path)], return_tensors="pt")
    processor.image_processor = Brightening(processor.image_processor)
    store = planned(processor, refs, folder=tmp_path, **settings)
    for _ in range(2):
        kept = store.features(refs[0], PIXELS)
        assert kept["pixel_values"].dtype == torch.float32
        assert torch.equal(store.join([kept])["pixel_values"], expected["pixel_values"])


@pytest.mark.parametrize("settings", [OFF, DISK, {"memory_bytes": 1600}, {"memory_bytes": 1600, "disk_bytes": 2400}])
def test_every_way_of_keeping_images_gives_the_same_batch(settings, world, refs, tmp_path):
    _, processor = worlds.student("siq-vl", world)
    kept = planned(processor, refs)
    other = planned(processor, refs, folder=tmp_path, **settings)
    assert other.full and not kept.full
    for _ in range(2):
        batches = [store.join([store.features(ref, PIXELS) for ref in refs]) for store in (kept, other)]
        assert torch.equal(batches[0]["pixel_values"], batches[1]["pixel_values"])


def test_the_same_image_is_kept_once(world, refs, tmp_path):
    _, processor = worlds.student("siq-vl", world)
    copy = tmp_path / "copy.png"
    copy.write_bytes(Path(refs[0].path).read_bytes())
    store = planned(processor, refs[:1])
    again = ImageRef(sha256=refs[0].sha256, path=str(copy))
    assert store.features(again, PIXELS) is store.features(refs[0], PIXELS)


def test_images_on_disk_are_not_decoded_again_by_the_next_process(world, refs, tmp_path, monkeypatch):
    _, processor = worlds.student("siq-vl", world)
    first = planned(processor, refs, folder=tmp_path, **DISK)
    decoded = counted(monkeypatch)
    again = planned(processor, refs, folder=tmp_path, **DISK)
    batches = [store.join([store.features(ref, PIXELS) for ref in refs]) for store in (first, again)]
    assert torch.equal(batches[0]["pixel_values"], batches[1]["pixel_values"])
    assert len(decoded) == len(SIZES)


def counted(monkeypatch) -> list[int]:
    """Grows by one an image that is decoded."""
    decoded: list[int] = []
    plain = image_files.decode
    monkeypatch.setattr(image_files, "decode", lambda data, **more: decoded.append(1) or plain(data, **more))
    return decoded


def test_other_settings_of_the_processor_never_see_each_others_pixels(world, refs, tmp_path):
    _, processor = worlds.student("llava", world)
    planned(processor, refs, folder=tmp_path, **DISK).features(refs[0], PIXELS)
    processor.image_processor.resample = 0
    other = planned(processor, refs, folder=tmp_path, **DISK).features(refs[0], PIXELS)
    made = processor.image_processor(images=[Image.open(refs[0].path)], return_tensors="pt", do_normalize=False)
    assert torch.equal(other["pixel_values"] / 255, made["pixel_values"])


def test_students_of_other_dtypes_never_see_each_others_pixels(world, refs, tmp_path):
    _, processor = worlds.student("llava", world)
    processor.image_processor = Brightening(processor.image_processor)
    rounded = planned(processor, refs, torch.bfloat16, folder=tmp_path, **DISK).features(refs[0], PIXELS)
    exact = planned(processor, refs, torch.float32, folder=tmp_path, **DISK).features(refs[0], PIXELS)
    assert rounded["pixel_values"].dtype == torch.bfloat16 and exact["pixel_values"].dtype == torch.float32


class Asked(torch.utils.data.Dataset):
    def __init__(self, store, refs):
        self.store, self.refs = store, refs

    def __len__(self):
        return len(self.refs)

    def __getitem__(self, place):
        return self.store.join([self.store.features(self.refs[place], PIXELS)])["pixel_values"]


def test_dataloader_workers_read_what_planning_kept(world, refs, tmp_path):
    _, processor = worlds.student("siq-vl", world)
    store, expected = planned(processor, refs, folder=tmp_path, **DISK), planned(processor, refs)
    for place, values in enumerate(DataLoader(Asked(store, refs), batch_size=None, num_workers=2)):
        assert torch.equal(values, expected.join([expected.features(refs[place], PIXELS)])["pixel_values"])


def test_what_is_kept_where_is_told(world, refs, tmp_path):
    _, processor = worlds.student("siq-vl", world)
    assert planned(processor, refs).facts == {}
    some = planned(processor, refs, memory_bytes=1600, disk_bytes=2400, folder=tmp_path)
    assert some.facts == {"images on disk": 3, "images not kept": 3}


def test_unreadable_images_raise_their_reason_at_every_use(world, refs, tmp_path):
    _, processor = worlds.student("siq-vl", world)
    cut = tmp_path / "cut.png"
    cut.write_bytes(Path(refs[0].path).read_bytes()[:200])
    bad = ImageRef(sha256=image_files.sha256(cut.read_bytes()), path=str(cut))
    store = planned(processor, [bad, *refs])
    for _ in range(2):
        with pytest.raises(ImageError):
            store.expansion(bad, PIXELS)
    assert len(store.expansion(refs[0], PIXELS)) > 1


def test_an_image_is_too_large_whatever_a_stage_before_allowed(world, refs):
    (_, processor), ref = worlds.student("siq-vl", world), refs[0]
    store = student_images.ImageStore(processor, torch.float32)
    allowed = store.expansion(ref, 10**6)
    with pytest.raises(ImageError, match="more than max_pixels = 10"):
        store.expansion(ref, 10)
    assert store.expansion(ref, 10**6) == allowed


def test_an_error_that_no_row_asked_for_is_not_that_of_a_later_stage(world, refs):
    """Of two images of a row the first is unreadable; the second was too large for that stage alone."""
    _, processor = worlds.student("siq-vl", world)
    store = planned(processor, refs[:1])
    store.prepare(refs[:1], 10)
    assert len(store.expansion(refs[0], PIXELS)) > 1


def test_planning_decodes_one_image_a_size_where_nothing_is_kept(world, refs, monkeypatch):
    _, processor = worlds.student("siq-vl", world)
    monkeypatch.setattr(image_files, "check", lambda *_, **__: None)
    decoded = counted(monkeypatch)
    off = planned(processor, refs, **OFF)
    assert len(decoded) == len(SIZES) < len(refs)
    kept = planned(processor, refs)
    assert [off.expansion(ref, PIXELS) for ref in refs] == [kept.expansion(ref, PIXELS) for ref in refs]


@pytest.mark.parametrize("settings", [{}, OFF])
def test_an_image_cut_short_is_found_out_by_planning_wherever_pixels_are_kept(settings, world, refs, tmp_path):
    _, processor = worlds.student("siq-vl", world)
    cut = tmp_path / "cut.jpg"
    Image.open(refs[1].path).save(cut)
    cut.write_bytes(cut.read_bytes()[:-800])
    bad = ImageRef(sha256=image_files.sha256(cut.read_bytes()), path=str(cut))
    store = planned(processor, [*refs, bad], **settings)
    with pytest.raises(ImageError, match="truncated"):
        store.expansion(bad, PIXELS)


def test_what_was_torn_is_never_read(tmp_path):
    cache = DiskCache(tmp_path, max_bytes=1000)
    for name in "abc":
        assert cache.put(name, [name.encode() * 100], {"of": name})
    with (tmp_path / INDEX).open("ab") as file:
        file.write(b'["d",300,100,1')
    with (tmp_path / DATA).open("r+b") as file:
        file.seek(150)
        file.write(b"?")
    again = DiskCache(tmp_path, max_bytes=1000)
    assert "d" not in again and again.get("b") is None
    assert again.get("a") == (b"a" * 100, {"of": "a"}) and again.get("c") == (b"c" * 100, {"of": "c"})
    assert again.put("b", [b"b" * 100], {"of": "b"}) and again.put("d", [b"d" * 40], None)
    assert DiskCache(tmp_path, max_bytes=0).get("b") == (b"b" * 100, {"of": "b"})
    assert DiskCache(tmp_path, max_bytes=0).get("d") == (b"d" * 40, None)


def test_data_that_is_shorter_than_its_index_says_is_missing(tmp_path):
    cache = DiskCache(tmp_path, max_bytes=1000)
    cache.put("a", [b"a" * 100], None)
    os.truncate(tmp_path / DATA, 60)
    assert cache.get("a") is None


def test_what_does_not_fit_is_turned_away_and_the_rest_stays(tmp_path):
    cache = DiskCache(tmp_path, max_bytes=250)
    assert [cache.put(name, [b"x" * 100], None) for name in "abc"] == [True, True, False]
    assert cache.full and "c" not in cache and cache.get("b") is not None and cache.bytes == 200


def test_entries_put_while_other_threads_look_for_them_stay_for_the_next_process(tmp_path):
    cache, stop = DiskCache(tmp_path, max_bytes=10**9), threading.Event()
    names = [str(number) for number in range(2000)]

    def look() -> None:
        while not stop.is_set():
            assert "absent" not in cache

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    readers = [threading.Thread(target=look) for _ in range(3)]
    try:
        for reader in readers:
            reader.start()
        for name in names:
            assert cache.put(name, [name.encode()], None)
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for reader in readers:
            reader.join()
    assert [name for name in names if name not in DiskCache(tmp_path, max_bytes=0)] == []


WRITER = """
import sys
from pathlib import Path
from student.data.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), max_bytes=10**9)
print("ready", flush=True)
for number in range(int(sys.argv[2]), 10**9, 3):
    cache.put(str(number), [str(number).encode() * 3000], number)
"""


def test_writers_killed_at_any_time_leave_whole_entries_only(tmp_path):
    root = Path(__file__).parents[3]
    for _ in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(tmp_path), str(first)], stdout=subprocess.PIPE, cwd=root
            )
            for first in range(3)
        ]
        for writer in writers:
            writer.stdout.readline()
        reader = DiskCache(tmp_path, max_bytes=0)
        while len(reader) < 20:
            assert all(writer.poll() is None for writer in writers)
            assert reader.get("none") is None  # a name that is not known is looked for in what was written since
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
    whole = DiskCache(tmp_path, max_bytes=0)
    names = list(whole._entries)
    assert len(names) >= 20 and all(whole.get(name) == (name.encode() * 3000, int(name)) for name in names)


@pytest.mark.parametrize("name", [name for name in image_files.FORMATS if name not in ("PPM", "GIF", "BMP")])
@pytest.mark.parametrize("orientation", [1, 3, 6, 9])
def test_the_size_in_the_header_is_that_of_the_pixels(name, orientation):
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (24, 16), (9, 8, 7)).save(buffer, name, exif=exif)
    data = buffer.getvalue()
    assert image_files.size(data, max_pixels=PIXELS) == image_files.decode(data, max_pixels=PIXELS).size
