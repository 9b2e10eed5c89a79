"""Data sets of statements and captions, and a folder of images."""

import csv
import hashlib
import random
import zipfile
from pathlib import Path

from layouts.package import (
    STRING,
    Made,
    layout,
    row,
    save_image,
    write_card,
    write_json,
    write_jsonl,
    write_parquet,
)
from layouts.scenes import Scene, encoded


@layout("dev")
def nlvr2_original(folder: Path, rng: random.Random) -> Made:
    """A statement about two images is true or false.

    The names of the images follow from an identifier. A file with the suffix .json has JSON lines.
    Source: https://github.com/lil-lab/nlvr/tree/master/nlvr2 (data/dev.json; pictures dev/)
    """
    entries, rows = [], []
    for i in range(8):
        left, other = Scene(rng), Scene(rng)
        base = f"dev-{850 + i}-0"
        images = [
            save_image(left.image, folder / "dev" / f"{base}-img0.png"),
            save_image(other.image, folder / "dev" / f"{base}-img1.png"),
        ]
        holds = i % 2 == 0
        statement = (
            f"One image has the word {left.word if holds else 'zebra'} "
            f"and the other has {other.count} {other.shape}s."
        )
        entries.append(
            {
                "validation": {"1": "True"},
                "sentence": statement,
                "left_url": "http://example.com/l.jpg",
                "writer": "30",
                "label": "True" if holds else "False",
                "right_url": "http://example.com/r.jpg",
                "synset": "sign",
                "query": "sign",
                "identifier": f"{base}-0",
                "extra_validations": {"2": "True"},
                "directory": i,
            }
        )
        rows.append(row(statement, "True" if holds else "False", images))
    write_jsonl(folder / "data/dev.json", entries)
    return "", rows


@layout("dev")
def vsr_original(folder: Path, rng: random.Random) -> Made:
    """A caption is true (1) or false (0).

    Source: https://github.com/cambridgeltl/visual-spatial-reasoning (data/splits/zeroshot/*.jsonl, images)
    """
    rows = []
    for split, count in (("train", 6), ("dev", 3)):
        entries = []
        for i in range(count):
            scene = Scene(rng)
            file_name = f"{rng.randrange(500000):012d}.jpg"
            image = save_image(scene.image, folder / "images" / file_name)
            holds = i % 2 == 0
            phrase, _ = scene.claim(holds)
            caption = f"The {phrase} is above the word."
            entries.append(
                {
                    "image": file_name,
                    "image_link": f"http://images.cocodataset.org/train2017/{file_name}",
                    "caption": caption,
                    "label": int(holds),
                    "relation": "above",
                    "annotator_id": 20,
                    "vote_true_validator_id": [1, 2],
                    "vote_false_validator_id": [],
                }
            )
            rows.append(
                row(
                    caption,
                    "True" if holds else "False",
                    [image],
                    split=split,
                    accept=["1", "yes", "True"] if holds else ["0", "no", "False"],
                )
            )
        write_jsonl(folder / f"data/splits/zeroshot/{split}.jsonl", entries)
    return "", rows


@layout("heldout", refusable=True)
def winoground_hf(folder: Path, rng: random.Random) -> Made:
    """Two captions belong to two images.

    There is no question and no answer, so a tool must refuse it.
    Source: https://huggingface.co/datasets/facebook/winoground (data/examples.jsonl, data/images.zip)
    """
    examples = []
    (folder / "data").mkdir()
    with zipfile.ZipFile(folder / "data/images.zip", "w") as archive:
        for i in range(8):
            left, other = Scene(rng), Scene(rng)
            archive.writestr(zipfile.ZipInfo(f"ex_{i}_img_0.png"), encoded(left.image))
            archive.writestr(zipfile.ZipInfo(f"ex_{i}_img_1.png"), encoded(other.image))
            examples.append(
                {
                    "id": i,
                    "image_0": f"ex_{i}_img_0",
                    "image_1": f"ex_{i}_img_1",
                    "caption_0": f"a {left.shape} over {other.word}",
                    "caption_1": f"{other.word} over a {left.shape}",
                    "tag": "Noun",
                    "secondary_tag": "",
                    "num_main_preds": 1,
                    "collapsed_tag": "Object",
                }
            )
    write_jsonl(folder / "data/examples.jsonl", examples)
    return "", []


@layout("heldout", refusable=True)
def coco_captions_original(folder: Path, rng: random.Random) -> Made:
    """Images have captions and no question, so a tool must refuse them.

    Source: https://cocodataset.org/#download (annotations/captions_val2014.json)
    """
    images, annotations = [], []
    for i in range(5):
        scene = Scene(rng)
        image_id = rng.randrange(500000)
        file_name = f"COCO_val2014_{image_id:012d}.jpg"
        save_image(scene.image, folder / "val2014" / file_name)
        images.append(
            {
                "license": 3,
                "file_name": file_name,
                "coco_url": f"http://images.cocodataset.org/val2014/{file_name}",
                "height": scene.image.height,
                "width": scene.image.width,
                "date_captured": "2013-11-14 11:18:45",
                "flickr_url": "http://f",
                "id": image_id,
            }
        )
        annotations += [
            {
                "image_id": image_id,
                "id": 10 * i + j,
                "caption": f"{scene.count} {scene.colour} {scene.shape}s {place}",
            }
            for j, place in enumerate(("in a row", "over a word"))
        ]
    write_json(
        folder / "annotations/captions_val2014.json",
        {
            "info": {"description": "COCO 2014 Dataset", "year": 2014},
            "images": images,
            "licenses": [{"url": "u", "id": 3, "name": "n"}],
            "annotations": annotations,
        },
    )
    return "", []


@layout("dev", refusable=True)
def flickr30k_csv(folder: Path, rng: random.Random) -> Made:
    """Columns are separated by a bar and a space.

    Images have captions and no question, so a tool must refuse them.
    Source: https://www.kaggle.com/datasets/hsankesara/flickr-image-dataset (flickr30k_images/results.csv)
    """
    top = folder / "flickr30k_images"
    lines = ["image_name| comment_number| comment"]
    for _ in range(3):
        scene = Scene(rng)
        file_name = f"{rng.randrange(10**8, 10**9)}.jpg"
        save_image(scene.image, top / "flickr30k_images" / file_name)
        lines += [f"{file_name}| {j}| {scene.count} {scene.colour} {scene.shape}s number {j} ." for j in range(3)]
    (top / "results.csv").write_text("\n".join(lines) + "\n")
    return "flickr30k_images", []


@layout("heldout", refusable=True)
def pixmo_ask_model_anything(folder: Path, rng: random.Random) -> Made:
    """The file has only the addresses of the images, so a tool without network must refuse it.

    Source: https://huggingface.co/datasets/allenai/pixmo-ask-model-anything
    """
    records = []
    for i in range(8):
        scene = Scene(rng)
        question, answer = scene.ask()
        records.append(
            {
                "image_url": f"https://example.invalid/{i}.jpg",
                "image_sha256": hashlib.sha256(encoded(scene.image)).hexdigest(),
                "question": question,
                "answer": answer,
            }
        )
    write_parquet(
        folder / "data/train-00000-of-00001.parquet",
        records,
        {"image_url": STRING, "image_sha256": STRING, "question": STRING, "answer": STRING},
    )
    write_card(folder, {"default": {"train": "data/train-*"}}, "pixmo-ask-model-anything")
    return "", []


@layout("heldout")
def imagefolder_metadata_csv(folder: Path, rng: random.Random) -> Made:
    """Each split is a folder of images with metadata.csv.

    Texts have commas and quotes.
    Source: https://huggingface.co/docs/datasets/image_dataset#imagefolder (metadata.csv with file_name)
    """
    rows = []
    for split, count in (("train", 7), ("test", 3)):
        (folder / split).mkdir()
        with (folder / split / "metadata.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file_name", "question", "answer"])
            for i in range(count):
                scene = Scene(rng)
                image = save_image(scene.image, folder / split / f"{i:04d}.png")
                question, answer = scene.ask()
                question = f'Look, then answer: {question} "Please."'
                writer.writerow([f"{i:04d}.png", question, answer])
                rows.append(row(question, answer, [image], split=split))
    return "", rows
