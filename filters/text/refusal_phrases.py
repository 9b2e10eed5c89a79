"""Phrases by which a model declines or says that it sees no image, by language.

Each entry is a set of words and a pattern over lower-case text with straight apostrophes. The pattern is tried on a
text that holds one of the words. It names what cannot be seen: "I cannot see any other bar" is a finding, no refusal.
"""

# ruff: noqa: E501
# A phrase that is split over lines is hard to read.

import re
from typing import Final

_IMAGE_WORD: Final = (
    r"(?:images?|pictures?|photos?|photographs?|charts?|graphs?|diagrams?|figures?|screenshots?|attachments?)"
)
_DETERMINER: Final = (
    r"(?:(?:the|an?|any|this|that|these|those|your|actual|attached|provided|uploaded|given|original|visual) ){0,3}"
)
# What may follow the noun: the end of the clause, or words that leave it the object. "The chart's title" is none.
_CLAUSE_END: Final = (
    r"(?=\s*(?:$|[.,;:!?)\n—–]|- )| (?:you|that you|that was|which|directly|here|itself|myself|at all|so|because|but|and i|"
    r"as (?:i|an|a)|since|from here|in (?:this|our|the) (?:chat|conversation|message|format)|attached|provided|again|"
    r"uploaded|to (?:answer|read|count|determine|verify|check)|content|data\b|or (?:images?|pictures?|files?|visuals?)))"
)
_SUBJECT: Final = r"(?:i|we)(?<!\wi)(?<!\wwe)"
_CAN_NOT: Final = (
    r"(?: ?(?:can't|cannot|can not|couldn't|could not)(?: (?:actually|directly|really|currently|physically))?"
    r"| ?(?:am|'m|are|'re) (?:currently )?(?:unable to|not able to|not capable of)| (?:may|might|would) not be able to"
    r"|(?: do not| don't) (?:actually )?have the ability to)"
)
_SEE: Final = (
    r"(?:see|view|access|open|display|look at|process|interpret|analy[sz]e|viewing|seeing|processing|analy[sz]ing)"
)

# Words of which a text must hold one, or all that a "+" joins: most texts hold none of them. Every pattern begins with
# a letter, by which the search finds its place several times as fast as by a word boundary.
_INABILITY: Final = "can't cannot couldn't could+not+see unable able capable ability won't"
_ENGLISH: Final = [
    (
        _INABILITY,
        rf"{_SUBJECT}{_CAN_NOT} {_SEE} (?:or \w+ )?{_DETERMINER}{_IMAGE_WORD}{_CLAUSE_END}",
    ),
    (
        "don't+see don't+access do+not+see do+not+access",
        rf"i (?<!\wi )(?:do not|don't) (?:actually |currently )?(?:see|have (?:direct )?access to) {_DETERMINER}"
        rf"{_IMAGE_WORD}{_CLAUSE_END}",
    ),
    (
        "no+there no+there's no+see no+received no+given i+have+no",
        r"no (?:(?<=there is no )|(?<=there was no )|(?<=there are no )|(?<=there were no )|(?<=there's no )|(?<=i have no )|(?<=i was given no )|(?<=i see no )"
        rf"|(?<=received no )){_IMAGE_WORD}"
        r"(?: (?:attached|provided|included|uploaded|available|here|in (?:your|the|this) (?:message|prompt|chat|conversation|question)"
        r"|to (?:look at|analy[sz]e|view))|[.,;!]|$)",
    ),
    (
        "no+attached no+provided no+uploaded no+included no+shared no+visible no+through",
        rf"no (?<!\wno ){_IMAGE_WORD} (?:(?:is|was|were|has been|have been|seems to be) )?(?:actually )?"
        r"(?:attached|provided|uploaded|included|shared|visible to me|came through)(?=\s*(?:$|[.,;!?)])| (?:to|with|in|so|here))",
    ),
    (
        "not+attached not+provided not+uploaded not+included not+shared never+attached never+provided never+uploaded "
        "wasn't+attached wasn't+provided wasn't+uploaded wasn't+included wasn't+shared isn't+attached isn't+provided "
        "load upload didn't+through not+through didn't+display",
        r"(?:the|your)(?<!\wthe) (?:image|picture|photo|chart|attachment|file)s? (?:(?:isn't|wasn't|weren't|(?:is|was|were) (?:not|never)) "
        r"(?:attached|provided|uploaded|included|shared)(?! (?:with|in the|on|for|at|twice))|(?:did not|didn't|failed to) (?:load|upload|come through|display))",
    ),
    (
        "please could+you can+you",
        r"(?:please|could you|can you) (?:upload|attach|share|provide|resend|re-upload) "
        rf"{_DETERMINER}{_IMAGE_WORD}{_CLAUSE_END}",
    ),
    (
        "without",
        rf"without (?:being able to (?:see|view)|seeing|access to|having access to) (?:the |an |any |that )?(?:actual )?{_IMAGE_WORD}"
        r"(?=[ ,]+(?:i|it is impossible|it's impossible|there is no way)\b)",
    ),
    (
        "ai language text-based text-only artificial",
        r"as an? (?<!\was a )(?<!\was an )(?:purely )?(?:text-based |text-only )?(?:large )?(?:ai|artificial intelligence|language|text|vision)"
        r"\b[^.\n]{0,40}?\b(?:i|we) ?(?:can't|cannot|can not|do not|don't|am unable|'m unable|am not able|'m not able|won't|lack)",
    ),
    (
        _INABILITY,
        rf"{_SUBJECT}(?: ?(?:can't|cannot|can not|won't|will not)| ?(?:am|'m) (?:unable to|not able to)| won't be able to| will not be able to)"
        r"(?: (?:help|assist)(?: you)? with (?:that|this|your|the|any|identifying|such)\b| (?:help|assist)(?: you)?(?: here| further)?"
        r"(?=\s*(?:$|[.,;!]))| comply\b| fulfil+ (?:this|that|your|the)| (?:answer|discuss|engage (?:in|with)) (?:that|this|such)"
        r" (?:question|request|topic|kind|type)| provide (?:assistance|help|that information|this information|an answer)\b"
        r"| (?:identify|recogni[sz]e) (?:real |specific )?(?:people|individuals|persons|faces|the person|this person|who))",
    ),
    (
        "sorry",
        r"sorry,? (?:but )?i(?: can't| cannot| can not|'m unable to|'m not able to| am unable to| am not able to| won't)"
        r" (?:help|assist|do|answer|provide|comply|fulfil|continue|process|discuss|share)\b(?! but| a precise| an exact)",
    ),
    (
        "decline refuse",
        r"i (?<!\wi )(?:must|have to|need to|will have to) (?:respectfully |politely )?(?:decline|refuse)\b(?! the)",
    ),
    (
        "guidelines policy policies programming principles",
        r"(?:against|violates?) (?:my|our|openai's|the content|usage) (?:guidelines|polic(?:y|ies)|programming|principles)",
    ),
    (
        "model ai assistant",
        r"i(?:'m| am)(?<!\wi'm)(?<!\wi am) (?:only |just )?an? (?:text-based|text-only|large language|language|ai)(?: language)? (?:model|ai|assistant)"
        r"(?=\s*(?:[.,;]|$)| (?:and|so|that|who|with|without|trained|designed|created|developed)\b)",
    ),
]  # fmt: skip
_PLACE_DE: Final = r"(?:bild(?:er)?|foto|diagramm|grafik|abbildung|anhang)"
_FR: Final = r"(?:l'image|d'images?|les images|le graphique|la photo|le diagramme|la figure|cette image|ce graphique)"
_ES: Final = r"(?:la imagen|las imágenes|imágenes|el gráfico|la gráfica|la foto|esta imagen|este gráfico|el archivo)"
_IT: Final = r"(?:l'immagine|le immagini|immagini|il grafico|la foto|questa immagine|questo grafico)"
_PT: Final = r"(?:a imagem|as imagens|imagens|o gráfico|a foto|esta imagem|este gráfico|essa imagem)"
_END: Final = r"(?=\s*(?:$|[.,;:!?)\n]| und | et | y | e | en | i | et | ni | ou | o ))"
_OTHERS: Final = [
    ("nicht", rf"ich kann (?:das|dieses|die|diese|ihr|dein|kein|leider das|leider die) {_PLACE_DE}"
                 rf"(?: leider| selbst| aktuell)? nicht (?:sehen|anzeigen|öffnen|einsehen|erkennen(?=[.,])|betrachten)"),
    ("helfen beantworten unterstützen weiterhelfen",
     r"\b(?:ich kann|kann ich|ich darf)(?: \w+){0,4} nicht (?:helfen|beantworten|weiterhelfen|unterstützen)"),
    ("kein keine", rf"\b(?:es (?:wurde|ist)|ich (?:sehe|habe)|mir (?:wurde|liegt)) (?:leider )?keine? {_PLACE_DE} "
                          r"(?:angehängt|beigefügt|hochgeladen|bereitgestellt|vorhanden|vor(?=[.,\s]|$)|erhalten)"),
    ("peux suis n'ai",
     rf"\bje (?:ne (?:peux pas|suis pas en mesure de)(?: malheureusement)? (?:voir|visualiser|afficher|analyser|accéder à|consulter)"
     rf"|n'ai pas accès à) {_FR}{_END}"),
    ("peux suis",
     r"\bje ne (?:peux pas|suis pas en mesure de) (?:vous aider|t'aider|répondre à (?:cette|votre|ta)|satisfaire|traiter cette)"),
    ("aucune aucun d'image",
     r"\b(?:aucune? (?:image|graphique|photo) n'(?:est|a été) (?:fournie?|jointe?|visible|téléchargée?)|il n'y a pas d'image)"),
    ("puedo capaz tengo posible",
     rf"\b(?:no (?:puedo|soy capaz de|me es posible) (?:ver|visualizar|acceder a|procesar|analizar|abrir)|no tengo acceso a) {_ES}{_END}"),
    ("puedo posible",
     r"\bno (?:puedo|me es posible) (?:ayudar(?:te|le|lo)?(?: con)?\b|asistir|responder (?:a )?(?:esa|esta)|cumplir con|proporcionar (?:esa|esta) información)"),
    ("imagen", r"\b(?:no (?:se )?(?:ha|me ha|has) (?:proporcionado|adjuntado|subido|enviado) (?:ninguna|la|una) imagen"
                  r"|no (?:veo|hay) ninguna imagen(?= adjunta|[.,;]|$))"),
    ("posso riesco grado accesso",
     rf"\bnon (?:posso|riesco a|sono in grado di) (?:vedere|visualizzare|accedere a|analizzare|aprire) {_IT}{_END}|\bnon ho accesso a(?:l|ll'|lle)"
     r" ?(?:immagin[ei]|grafico)"),
    ("posso grado",
     r"\bnon (?:posso|sono in grado di) (?:aiutart?i|aiutarla|aiutare con|assisterti|rispondere a (?:questa|tale)|soddisfare)"),
    ("immagine", r"\bnon (?:è stata (?:fornita|allegata|caricata) (?:alcuna|nessuna|l')|vedo (?:alcuna|nessuna) )\s?immagine"),
    ("posso consigo tenho capaz",
     rf"\bnão (?:posso|consigo|sou capaz de) (?:ver|visualizar|acessar|aceder a|analisar|abrir|processar) {_PT}{_END}|\bnão tenho acesso (?:à|ao|a) "
     r"(?:imagem|gráfico|imagens)"),
    ("posso consigo", r"\bnão (?:posso|consigo) (?:ajudar|ajudá-l[oa]|te ajudar|auxiliar|atender a|responder a ess[ae])"),
    ("imagem", r"\bnenhuma imagem foi (?:fornecida|anexada|enviada)|\bnão (?:vejo|há) nenhuma imagem(?= anexada|[.,;]|$)"),
    ("niet", r"\bik kan (?:de|het|deze|dit|uw|je) (?:afbeelding|foto|grafiek|diagram|plaatje) (?:helaas )?niet (?:zien|bekijken|openen|weergeven)"),
    ("helpen", r"\b(?:ik kan|kan ik)(?: \w+){0,4} niet (?:mee )?helpen"),
    ("mogę stanie widzę",
     r"\bnie (?:mogę|jestem w stanie) (?:zobaczyć|wyświetlić|otworzyć|przeanalizować) (?:tego |tej )?(?:obraz|zdjęci|wykres|grafik)"
     r"|\bnie mogę (?:ci |panu |pani |w tym )*pomóc|\bnie widzę (?:żadnego )?(?:załączonego )?(?:obrazu|zdjęcia)(?=[.,;]|$| w )"),
    ("могу вижу доступа",
     r"\bне могу (?:увидеть|просмотреть|посмотреть|открыть|видеть|проанализировать) (?:это |этот |эту |данное |само )?"
     r"(?:изображени|картинк|график|диаграмм|фото)[а-я]*(?=[\s.,;:!?]|$)(?! на| в )|\bне могу (?:вам |тебе |с этим |в этом )*(?:помочь|ответить на этот)"
     r"|\bне вижу изображения(?=[.,;]|$)|\bнет доступа к изображени"),
    ("изображение картинка", r"\b(?:изображение|картинка) не (?:было |была )?(?:прикреплен|предоставлен|загру)"),
    ("thể",
     r"\b(?:tôi )?không thể (?:nhìn thấy|xem|truy cập|mở|phân tích|xử lý)(?: được)? (?:hình ảnh|bức ảnh|ảnh|biểu đồ|hình)(?: này| đó| của bạn)?(?=\s*(?:$|[.,;!?]))"
     r"|\b(?:tôi )?không thể (?:giúp|hỗ trợ) (?:bạn|việc|yêu cầu|với)"),
    ("göremiyorum görüntüleyemiyorum erişemiyorum olamam olamıyorum",
     r"\b(?:görseli|resmi|görüntüyü|fotoğrafı|grafiği)(?: şu anda| maalesef)? (?:göremiyorum|görüntüleyemiyorum)"
     r"|\b(?:görsele|resme|görüntüye|grafiğe) erişemiyorum|\byardımcı (?:olamam|olamıyorum)"),
    ("tidak",
     r"\btidak (?:dapat|bisa) (?:melihat|mengakses|membuka|menganalisis|memproses) (?:gambar|foto|grafik|diagram)(?: ini| itu| tersebut| anda)?(?=\s*(?:$|[.,;!?]))"
     r"|\b(?:saya|kami) tidak (?:dapat|bisa) (?:membantu|menjawab pertanyaan (?:ini|itu))"),
    ("أستطيع يمكنني أرى",
     r"(?:لا أستطيع|لا يمكنني) (?:رؤية|عرض|الوصول إلى|فتح|تحليل) (?:هذه |هذا )?(?:الصورة|الصور|الرسم|المخطط)|(?:لا أستطيع|لا يمكنني) (?:مساعدتك|المساعدة|الإجابة عن هذا)|لا أرى (?:أي |أية )?صورة"),
]  # fmt: skip
# Without spaces there are no words to ask for, but the scripts are rare enough for a search.
_UNSPACED: Final = [
    (("无法", "不能", "看不到", "没有看到", "没有提供", "未提供", "没有收到", "未收到", "没收到", "没有上传", "未上传", "没有附", "未附", "作为一个", "作为ai"),
     r"我(?:目前|暂时|实际上|其实|现在)?(?:无法|不能|没有?办法|没有能力)(?:直接|真正)?(?:看到|查看|看见|访问|打开|读取|识别|处理|浏览)(?:到)?(?:这张|该|此|您的|你的|任何|提供的|所提供的)?"
     r"(?:图片|图像|图表|照片|图)(?:本身|内容|文件)?(?=[，。,.；;!！、\n]|$|所以|因此|但|和|或)"
     r"|我(?:这里)?(?:看不到|没有看到|没有收到|未收到|没收到)(?:您|你)?(?:上传的|提供的|发送的|发的)?(?:这张|该|任何)?(?:图片|图像|图表|照片)(?=[，。,.；;!！\n]|$|所以|因此)"
     r"|(?:您|你|用户|题目)?(?:没有|并未|未)(?:提供|上传|附上)(?:任何)?(?:图片|图像|图表|照片)(?=[，。,.；;!！\n]|$|所以|因此)"
     r"|(?:抱歉|对不起|很遗憾)[^。\n]{0,12}(?:无法|不能)(?:帮助|协助|提供|回答|满足|完成|处理|继续)"
     r"|我(?:无法|不能)(?:帮助你|帮助您|协助|满足|回答这个问题|回答该问题|提供帮助)"
     r"|作为(?:一个|一名)?(?:ai|人工智能|语言模型|大型语言模型|文本模型)[^。\n]{0,20}(?:无法|不能|没有能力|看不到)"),
    (("画像", "図", "グラフ", "写真"),
     r"(?:画像|写真|図|グラフ)(?:自体)?(?:を|は)(?:直接)?(?:見る|確認する|表示する|閲覧する|認識する|解析する|分析する)ことができ(?:ません|ない)"
     r"|(?:画像|写真|グラフ)が(?:添付|提供|アップロード)されて(?:いません|いない)|(?:画像|写真|グラフ)(?:が|は)(?:見え|見られ|表示され)ません"),
    (("できません", "できかねます"),
     r"(?:申し訳(?:ありません|ございません)|すみません)[^\n]{0,40}?(?:お手伝い|お答え|対応|提供)(?:することは|は)?(?:できません|できかねます)"),
    (("없습니다", "없어요", "없다", "없는", "않았", "않습니다"),
     r"(?:이미지|사진|그림|차트|그래프)(?:를|을|는|은)? ?(?:직접 )?(?:볼|확인할|열|분석할|처리할|인식할) 수(?:가|는)? ?없"
     r"|(?:이미지|사진)(?:가|이) (?:첨부|제공|업로드)되(?:지 않았|어 있지 않)|죄송[^\n]{0,30}(?:도와드릴|답변드릴|답변할|제공할|도울) 수(?:가|는)? ?없"),
]  # fmt: skip


def _by_word() -> dict[bytes, tuple[tuple[frozenset[bytes], int], ...]]:
    patterns_of_word: dict[bytes, list[tuple[frozenset[bytes], int]]] = {}
    for index, (gates, _) in enumerate([*_ENGLISH, *_OTHERS]):
        for gate in gates.split():
            words = gate.encode().split(b"+")
            patterns_of_word.setdefault(words[-1], []).append((frozenset(words), index))
    return {word: tuple(patterns) for word, patterns in patterns_of_word.items()}


PATTERNS: Final = tuple(re.compile(pattern) for _, pattern in [*_ENGLISH, *_OTHERS, *_UNSPACED])
BY_WORD: Final = _by_word()
"""The patterns of a word: for each pattern all words that a text must hold, and its index in PATTERNS."""
BY_PART: Final = tuple(
    (part, len(_ENGLISH) + len(_OTHERS) + index) for index, (parts, _) in enumerate(_UNSPACED) for part in parts
)
"""Parts of words of languages without spaces, each with the index of its pattern in PATTERNS."""

# "It cannot be determined": no refusal where the gold answer or an option says the same.
ABSTENTION: Final = re.compile(
    r"\b(?:can(?:not|'t| not)|could(?: not|n't)|impossible to|unable to|not possible to) (?:be )?(?:determined?|answered?|inferred|known|know|tell|"
    r"say|deduced|identified)\b|\bnot (?:enough|sufficient) (?:information|data|context)|\binsufficient (?:information|data|context)"
    r"|\bunanswerable\b|\b(?:is|are) not (?:given|provided|specified|stated|shown|mentioned)\b|\bi (?:do not|don't) know\b"
    r"|\bdoes(?: not|n't) (?:show|contain|include|provide|give|specify)\b|\bcannot determine\b|^(?:n/?a|unknown|none of the above)\W*$"
    r"|\b(?:kann|lässt sich) nicht (?:bestimmt|beantwortet|ermittelt|bestimmen|beantworten|ermitteln)"
    r"|\bne peut pas être (?:déterminée?|répondue?)|\bno se puede (?:determinar|saber|responder)|\bnon (?:è possibile|si può) (?:determinare|stabilire)"
    r"|\bnão (?:é possível|se pode) (?:determinar|saber|responder)|\bнельзя определить|\bневозможно определить|无法(?:确定|判断|得知|回答)|不能确定"
    r"|判断できません|分かりません|わかりません|알 수 없|판단할 수 없"
)

# After these words an inability is a condition or another speaker's, and no refusal of this answer.
_NOT_AFTER: Final = (
    "if|when|unless|whether|where|though|claims|says|that case|case|suppose|supposing|"
    "assume|assuming|imagine|pretend|wenn|si"
)
NOT_AFTER: Final = tuple(f"{words} " for words in _NOT_AFTER.split("|"))
