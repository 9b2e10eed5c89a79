"""What images in a store cost a run: requests, bytes and CPU an image, one by one and in shards.

    python benchmarks/scale/images.py [--images 400] [--kilobytes 150] [--partitions 4]

Images of random bytes lie in an S3 server on this machine (moto). A proxy counts the requests. The planning process
of a run reads every image once, and packs it. Then another machine reads each partition: by one object an image, or
by the shards of the partition. Bytes are those of images and of what holds them.
Takes 7 s with `--images 20 --kilobytes 20 --partitions 2` (two shared cores).
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import store_servers

from distill.data.images import image_files, stored_images
from distill.object_store.open_store import open_store
from distill.object_store.recipe_stores import files_in
from distill.recipe.loading import load
from distill.types import ImageRef
from distill.units import image_shards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--kilobytes", type=int, default=150)
    parser.add_argument("--partitions", type=int, default=4)
    options = parser.parse_args()
    os.environ |= store_servers.KEYS
    faults = store_servers.StoreFaults()
    with (
        tempfile.TemporaryDirectory() as folder,
        store_servers.s3_server() as server,
        store_servers.faulty_proxy(server, faults) as endpoint,
    ):
        recipe = Path(folder, "recipe.toml")
        recipe.write_text(store_servers.recipe_section(endpoint))
        with files_in(Path(folder, "scratch"), load(recipe)):
            measure(endpoint, faults.seen, options.images, options.kilobytes << 10, options.partitions)


def measure(endpoint: str, seen: Counter[str], images: int, size: int, partitions: int) -> None:
    store = open_store(f"s3://{store_servers.BUCKET}", config=store_servers.config(endpoint))
    rng, refs = np.random.default_rng(0), []
    for number in range(images):
        data = rng.bytes(size)
        store.put(f"images/{number:06d}", data)
        digest, address = image_files.sha256(data), f"s3://{store_servers.BUCKET}/images/{number:06d}"
        refs.append(ImageRef(sha256=digest, path=address))
    groups = {f"{part:02x}": refs[part::partitions] for part in range(partitions)}

    @contextmanager
    def step(name: str) -> Iterator[None]:
        seen.clear()
        started = time.process_time()
        yield
        cpu_ms = 1000 * (time.process_time() - started) / images
        told = ", ".join(f"{count / images:.3f} {method}" for method, count in sorted(seen.items()))
        print(f"{name}: {told or 'no request'} an image; {cpu_ms:.2f} ms of CPU an image, the server's with it")

    with step("planning reads each image"):
        for ref in refs:
            image_files.read_bytes(ref)
    with step("planning packs each image"):
        for name, group in groups.items():
            image_shards.put_shards(store, "attempt", name, group)
    stored_images.forget(ref.sha256 for ref in refs)
    with step("units read one by one"):
        for ref in refs:
            image_files.read_bytes(ref)
    stored_images.forget(ref.sha256 for ref in refs)
    with step("units read shards"):
        for name, group in groups.items():
            image_shards.fetch_shards(store, "attempt", {ref.sha256 for ref in group}, name)
    assert all(stored_images.read_kept(ref.sha256) is not None for ref in refs)
    shards = store.list_objects("plan/images")
    packed = sum(shard.bytes for shard in shards)
    print(f"{images} images of {size >> 10} kB: {len(shards)} shards, {packed / images / size - 1:.2%} more bytes")


if __name__ == "__main__":
    main()
