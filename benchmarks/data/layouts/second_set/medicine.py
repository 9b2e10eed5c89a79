"""Medical questions."""

import csv
import random
from pathlib import Path

from layouts.package import (
    Made,
    letter,
    row,
    save_image,
    write_json,
    write_jsonl,
)
from layouts.scenes import Scene
from layouts.second_set.languages import blind, distinct


@blind("whole")
def omnimedvqa_original(folder: Path, rng: random.Random) -> Made:
    """A JSON file for each source; the fields are not the same in all, some questions have two choices.

    Source: https://huggingface.co/datasets/foreverbeliever/OmniMedVQA; fields listed by loaders on GitHub, one file
    says `modality`.
    """
    rows = []
    for name, count in (("ACRIMA", 4), ("Chest CT Scan", 4), ("ISIC2018", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            path = f"Images/{name}/train/{scene.word}_{i:04d}.png"
            image = save_image(scene.image, folder / path)
            question, choices, right = scene.ask_closed(2 if i % 3 == 1 else 4)
            record = {
                "dataset": name,
                "question_id": f"{name}_{i:04d}",
                "question_type": "Modality Recognition",
                "question": question,
                "gt_answer": choices[right],
                "image_path": path,
            }
            record |= {f"option_{letter(j)}": each for j, each in enumerate(choices)}
            records.append(
                record | {"modality" if name == "Chest CT Scan" else "modality_type": "CT(Computed Tomography)"}
            )
            rows.append(row(question, None, [image], choices, right))
        write_json(folder / "QA_information" / "Open-access" / f"{name}.json", records, 4)
    return "", rows


@blind("in part")
def pmc_vqa_original(folder: Path, rng: random.Random) -> Made:
    """CSV files with choices that begin with their letter; pictures in a folder that no column names.

    Source: https://huggingface.co/datasets/xmcmic/PMC-VQA; Figure_path, Question, Choice A.. confirmed in
    xiaoman-zhang/PMC-VQA.
    """
    rows = []
    for split, count in (("train", 7), ("test", 4)):
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["Figure_path", "Question", "Answer", "Choice A", "Choice B", "Choice C", "Choice D", "Answer_label"]
            )
            for i in range(count):
                scene = Scene(rng)
                name = f"PMC{rng.randrange(10**6, 10**7)}_Fig{i + 1}_{rng.randrange(1, 99)}.jpg"
                image = save_image(scene.image, folder / "images" / name)
                question, choices, right = scene.ask_closed(4)
                writer.writerow(
                    [
                        name,
                        question,
                        choices[right],
                        *(f" {letter(j)}:{each} " for j, each in enumerate(choices)),
                        letter(right),
                    ]
                )
                rows.append(row(question, None, [image], choices, right, split=split))
    return "", rows


@blind("whole")
def vqa_med_2019(folder: Path, rng: random.Random) -> Made:
    """Lines of three fields with `|`, no header; pictures without their ending; the same lines again by category.

    Source: abachaa/VQA-Med-2019 and loaders on GitHub (All_QA_Pairs_train.txt, Train_images,
    QAPairsByCategory/C1_Modality_train.txt).
    """
    rows = []
    for split, long, count in (("train", "Training", 7), ("val", "Validation", 3)):
        top = folder / f"ImageClef-2019-VQA-Med-{long}"
        lines: dict[str, list[str]] = {"C1_Modality": [], "C2_Plane": [], "C3_Organ": []}
        names = []
        for i in range(count):
            scene = Scene(rng)
            names.append(f"synpic{rng.randrange(10000, 70000)}")
            image = save_image(
                scene.image, top / f"{long[:5] if split == 'train' else 'Val'}_images" / f"{names[-1]}.jpg"
            )
            for category, kind in list(zip(lines, ("count", "colour", "word"), strict=True))[: 1 + i % 2]:
                question, answer = scene.ask(kind)
                question = question.lower()
                lines[category].append(f"{names[-1]}|{question}|{answer}")
                rows.append(row(question, answer, [image], split=split))
        (top / f"All_QA_Pairs_{split}.txt").write_text(
            "".join(f"{line}\n" for each in lines.values() for line in each)
        )
        (top / f"{split}_ImageIDs.txt").write_text("".join(f"{name}\n" for name in names))
        (top / "QAPairsByCategory").mkdir()
        for category, each in lines.items():
            (top / "QAPairsByCategory" / f"{category}_{split}.txt").write_text("".join(f"{line}\n" for line in each))
    return "", rows


@blind("whole")
def medxpertqa_mm(folder: Path, rng: random.Random) -> Made:
    """Choices are a mapping and stand in the question too; one to three pictures.

    Source: https://huggingface.co/datasets/TsinghuaC3I/MedXpertQA, eval/data/prepare_medxpertqa.ipynb of its
    repository.
    """
    rows, number = [], 0
    for split, count in (("dev", 3), ("test", 7)):
        records = []
        for _ in range(count):
            scenes = distinct(rng, rng.randrange(1, 4))
            names = [f"MM-{number}-{'abc'[i]}.jpeg" for i in range(len(scenes))]
            images = [
                save_image(scene.image, folder / "images" / name) for scene, name in zip(scenes, names, strict=True)
            ]
            asked, choices, right = scenes[-1].ask_closed(5)
            question = f"Consider the picture with the word {scenes[-1].word}. {asked}"
            listed = " ".join(f"({letter(j)}) {each}" for j, each in enumerate(choices))
            records.append(
                {
                    "id": f"MM-{number}",
                    "question": f"{question}\nAnswer Choices: {listed}",
                    "options": {letter(j): each for j, each in enumerate(choices)},
                    "label": letter(right),
                    "images": names,
                    "medical_task": "Diagnosis",
                    "body_system": "Skeletal",
                    "question_type": "Reasoning",
                }
            )
            number += 1
            rows.append(row(question, None, images, choices, right, split=split))
        write_jsonl(folder / "MM" / f"{split}.jsonl", records)
    return "", rows
