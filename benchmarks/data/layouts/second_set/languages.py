"""What the modules of this group share: questions in ten languages, and scenes with different words."""

import base64
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from layouts.package import Made, PublicLayout
from layouts.scenes import COLOURS, WORDS, Scene, encoded

GROUP: Final = "heldout-2"

LANGUAGES: Final[dict[str, dict[str, str]]] = {
    "de": {
        "count": "Wie viele Formen sind auf dem Bild zu sehen?",
        "colour": "Welche Farbe haben die Formen?",
        "word": "Welches Wort steht unten im Bild?",
    },
    "fr": {
        "count": "Combien de formes voit-on sur l'image ?",
        "colour": "De quelle couleur sont les formes dessinées ?",
        "word": "Quel mot est écrit à côté du bord inférieur ?",
    },
    "es": {
        "count": "¿Cuántas figuras hay en la imagen?",
        "colour": "¿De qué color son las figuras?",
        "word": "¿Qué palabra está escrita abajo?",
    },
    "pt": {
        "count": "Quantas formas há na imagem?",
        "colour": "De que cor são as formas?",
        "word": "Que palavra está escrita em baixo?",
    },
    "vi": {
        "count": "có bao nhiêu hình trong bức ảnh",
        "colour": "màu của các hình là gì",
        "word": "từ nào được in ở dưới",
    },
    "id": {
        "count": "Berapa banyak bentuk pada gambar?",
        "colour": "Apa warna bentuk pada gambar?",
        "word": "Kata apa yang tertulis di bawah?",
    },
    "zh": {"count": "图中有多少个图形？", "colour": "图中的图形是什么颜色？", "word": "图片下方印的是哪个单词？"},
    "ja": {
        "count": "画像には図形がいくつありますか？",
        "colour": "図形は何色ですか？",
        "word": "下に書かれている単語は何ですか？",
    },
    "ar": {
        "count": "كم عدد الأشكال في الصورة؟",
        "colour": "ما لون الأشكال؟",
        "word": "ما الكلمة المكتوبة في الأسفل؟",
    },
    "ru": {
        "count": "Сколько фигур на изображении?",
        "colour": "Какого цвета фигуры?",
        "word": "Какое слово напечатано внизу?",
    },
}
COLOUR_NAMES: Final = {
    "de": ["rot", "blau", "grün", "orange", "lila", "schwarz"],
    "fr": ["rouge", "bleu foncé", "vert", "orangé", "violet", "noir"],
    "es": ["rojo", "azul", "verde", "naranja", "morado", "negro"],
    "pt": ["vermelho", "azul", "verde", "laranja", "roxo", "preto"],
    "vi": ["màu đỏ", "màu xanh dương", "màu xanh lá", "màu cam", "màu tím", "màu đen"],
    "id": ["merah", "biru", "hijau", "oranye", "ungu", "hitam"],
    "zh": ["红色", "蓝色", "绿色", "橙色", "紫色", "黑色"],
    "ja": ["赤", "青", "緑", "オレンジ", "紫", "黒"],
    "ar": ["أحمر", "أزرق", "أخضر", "برتقالي", "بنفسجي", "أسود"],
    "ru": ["красный", "синий", "зелёный", "оранжевый", "фиолетовый", "чёрный"],
}
KINDS: Final = ("count", "colour", "word")


def blind(
    confirmed: str, *, refusable: bool = False
) -> Callable[[Callable[[Path, random.Random], Made]], PublicLayout]:
    """Make a layout of this group of the function that writes its files."""
    return lambda write: PublicLayout(write.__name__, GROUP, refusable, write, confirmed)


def ask_in(scene: Scene, language: str, kind: str) -> tuple[str, str]:
    """A question and its answer in another language."""
    answer = {
        "count": str(scene.count),
        "word": scene.word,
        "colour": COLOUR_NAMES[language][list(COLOURS).index(scene.colour)],
    }
    return LANGUAGES[language][kind], answer[kind]


def closed_in(scene: Scene, language: str, kind: str, count: int = 4) -> tuple[str, list[str], int]:
    """A question with choices in another language."""
    question, answer = ask_in(scene, language, kind)
    pools = {"count": [str(i) for i in range(1, 10)], "word": list(WORDS), "colour": COLOUR_NAMES[language]}
    choices = [*scene.rng.sample([each for each in pools[kind] if each != answer], count - 1), answer]
    scene.rng.shuffle(choices)
    return question, choices, choices.index(answer)


def distinct(rng: random.Random, count: int) -> list[Scene]:
    """Scenes with different words."""
    found: list[Scene] = []
    while len(found) < count:
        scene = Scene(rng)
        if scene.word not in {each.word for each in found}:
            found.append(scene)
    return found


def base64_of(scene: Scene, kind: str = "PNG") -> tuple[str, bytes]:
    """The picture in base64, and its bytes."""
    data = encoded(scene.image, kind)
    return base64.b64encode(data).decode(), data


def kind_of(index: int) -> str:
    return KINDS[index % 3]
