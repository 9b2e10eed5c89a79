"""Everyday words of answers in the languages of the benchmarks: colours, animals, vehicles, seasons.

A model often answers a question of another language in English. Only words with one usual meaning are here; names of
countries are in `distill.answers.words.place_names`.
"""

from typing import Final

from distill.answers.words.other_scripts import other_scripts

_CONCEPTS_TEXT: Final = """
    red|rouge rouges|rot rote rotes roter roten|rojo roja rojos rojas|rosso rossa|vermelho vermelha|红 红色
    红色的|赤 赤色|أحمر حمراء|लाल|빨간색 빨강 붉은색 적색|красный красная красное красные красного красной;
    blue|bleu bleue bleus bleues|blau blaue blaues blauer blauen|azul azules|azzurro blu|蓝 蓝色 蓝色的|青
    青色|أزرق زرقاء|नीला नीली नीले|파란색 파랑 청색|синий синяя синее синие голубой голубая голубое голубые;
    green|vert verte verts vertes|grün grüne grünes grüner grünen|verde verdes|绿 绿色 绿色的|緑 緑色|أخضر
    خضراء|हरा हरी हरे|초록색 초록 녹색|зелёный зелёная зелёное зелёные зеленый зеленая зеленое зеленые;
    yellow|jaune jaunes|gelb gelbe gelbes gelber gelben|amarillo amarilla amarillos amarillas|giallo
    gialla|amarelo amarela|黄 黄色 黄色的|أصفر صفراء|पीला पीली पीले|노란색 노랑 황색|жёлтый жёлтая жёлтое жёлтые
    желтый желтая желтое желтые; black|noir noire noirs noires|schwarz schwarze schwarzes schwarzer
    schwarzen|negro negra negros negras|nero nera|preto preta|黑 黑色 黑色的|黒 黒色|أسود سوداء|काला काली
    काले|검은색 검정 검정색 흑색|чёрный чёрная чёрное чёрные черный черная черное черные; white|blanc blanche
    blancs blanches|weiß weiße weißes weißer weißen|blanco blanca blancos blancas|bianco bianca|branco branca|白
    白色 白色的|أبيض بيضاء|सफेद सफ़ेद|흰색 하얀색 하양 백색|белый белая белое белые белого белой;
    orange|orangefarben|naranja naranjas|arancione|laranja|橙 橙色 橙色的|オレンジ オレンジ色|برتقالي|नारंगी;
    purple|violet violette|violett lila|morado morada|viola|roxo|紫 紫色 紫色的|بنفسجي|बैंगनी; brown|marron brun
    brune|braun braune braunes brauner|marrón marrones|marrone|marrom|棕 棕色 棕色的 褐色|茶色|بني|भूरा भूरी
    भूरे; pink|rose roses|rosa rosas|粉 粉色 粉色的 粉红 粉红色|ピンク ピンク色|وردي|गुलाबी; gray grey|gris
    grise grises|grau graue graues grauer grauen|grigio grigia|cinza|灰 灰色 灰色的|رمادي;
    left|links|gauche|izquierda|sinistra|esquerda|左 左边 左侧 左面|左側|يسار اليسار|बाएँ बाएं; cat|chat
    chats|katze katzen|gato gata gatos|gatto gatta|猫 猫咪|ネコ ねこ|قطة|बिल्ली; dog|chien chiens|hund
    hunde|perro perra perros|cane|cachorro|狗|犬 イヌ いぬ|كلب|कुत्ता;
    horse|cheval|pferd|caballo|cavallo|cavalo|马|馬 ウマ うま|حصان|घोड़ा;
    bird|oiseau|vogel|pájaro|uccello|pássaro|鸟|鳥 とり|طائر|पक्षी; bus|autobus|autobús|ônibus|公交车 公共汽车
    巴士|バス|حافلة; car|voiture|auto|coche|macchina|carro|汽车|車 くるま|سيارة|कार; bicycle
    bike|vélo|fahrrad|bicicleta|自行车 单车|自転車|دراجة|साइकिल; train|zug|tren|treno|trem|火车|電車|قطار;
    summer|été|sommer|verano|estate|verão|夏天 夏季|夏|الصيف صيف|गर्मी; winter|hiver|invierno|inverno|冬天
    冬季|冬|الشتاء شتاء; apple|pomme|apfel|manzana|mela|maçã|苹果|リンゴ りんご|تفاحة|सेब;
    munich|münchen; vienna|wien|vienne|viena; cologne|köln|colonia; rome|rom|roma; milan|mailand|milano|milán;
    florence|florenz |firenze|florencia; venice|venedig|venise|venezia|venecia; naples|neapel|napoli|nápoles;
    moscow|moskau|moscou|moscú|москва; warsaw|warschau|varsovie|varsovia|warszawa; prague|prag|praga|praha;
    lisbon|lissabon|lisbonne|lisboa; brussels|brüssel |bruxelles|bruselas; geneva|genf|genève|ginebra;
    copenhagen|kopenhagen|copenhague|københavn; athens|athen|athènes|atenas; cairo|kairo|caire; kyoto|京都;
    seoul|서울|首尔|ソウル; london|londres|londra|лондон; paris|parigi|париж|巴黎|パリ;
    banana|banane|plátano|香蕉|バナナ|موز|केला; water|eau|wasser|agua|acqua|água|水|ماء|पानी; beijing
    peking|pékin|pekín|pechino|北京 北京市; tokyo|tokio|东京 东京都|東京 東京都 とうきょう; shanghai|上海 上海市
"""
_CONCEPTS: Final = [[set(language.split()) for language in line.split("|")] for line in _CONCEPTS_TEXT.split(";")]
_MEANINGS: Final[dict[str, list[tuple[int, int]]]] = {}
"""The concepts of each word and their languages, as numbers."""
for _concept, _languages in enumerate(_CONCEPTS):
    for _language, _words in enumerate(_languages):
        for _word in {other_scripts(word) for word in _words}:
            _MEANINGS.setdefault(_word, []).append((_concept, _language))
_COLOUR_WORDS_TEXT: Final = """color colour couleur farbe de cor colore 颜色 色 رنگ اللون لون بلون रंग का की के"""
FOREIGN_FILLERS: Final = frozenset(map(other_scripts, _COLOUR_WORDS_TEXT.split()))
"""Words of a colour and its case beside the colour itself: de couleur rouge, लाल रंग."""


def is_same_word(word: str, gold_word: str) -> bool:
    """Whether two words of one language name the same everyday thing: rouge and rouges."""
    return bool({*_MEANINGS.get(word, ())} & {*_MEANINGS.get(gold_word, ())})


def is_translation(word: str, gold_word: str) -> bool:
    """Whether two words of two languages name the same everyday thing: red and rouge."""
    concepts, gold_concepts = ({concept for concept, _ in _MEANINGS.get(one, ())} for one in (word, gold_word))
    return bool(concepts & gold_concepts)


def is_colour(word: str) -> bool:
    """Whether a word names a colour in one of the languages."""
    return any(concept < _COLOURS for concept, _ in _MEANINGS.get(word, ()))


_COLOURS: Final = next(index for index, languages in enumerate(_CONCEPTS) if "left" in languages[0])
"""The concepts before "left" are colours."""
