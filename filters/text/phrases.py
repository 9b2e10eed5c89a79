"""Phrases of two to four words that mean one word, or that say nothing, although a word of them would elsewhere.

"At first glance" has no number, "no doubt" does not deny, and "for that reason" is "therefore". Other words of such a
phrase are fillers of `filters.text.rationale_words` already, so a phrase is listed by the words that are none. The
words of Chinese and Japanese are their characters. All on hashes of words, many texts at a time.
"""

from itertools import product
from typing import Final

LONGEST: Final = 4
"""Words of a phrase."""

_SAY_NOTHING: Final = """
    no doubt | follows that | without doubt | without question | no question | sum up | first glance | first sight
    | first look | first of all | after all | all in all | above all | all told | once again | once more | other
    words | any case | any event | either way | this point | this stage | that point | that stage | first off | on
    the whole | as a whole | the way | turns out | goes without saying | saying that | long story short | in short
    | in brief | as noted above | as noted before | as noted earlier | as mentioned above | as mentioned before |
    as mentioned earlier | as stated above | as stated before | as stated earlier | as said above | as said before
    | as said earlier | as explained above | as described above | as seen above | as shown above | as discussed
    above | as expected | second look | closer look | close look | careful look | quick look | quick glance |
    closer inspection | close inspection | closer examination | step by step | that reason | this reason | these
    reasons | this means that | far as | so far | up to now | in total | put together | taken together | all
    together | total of | account of | along with | together with | start with | begin with | for starters | let
    us start | the fact that | matter of fact | that matter | i mean | you know | we know | to be sure | be
    precise | be exact | more precisely | more exactly | more specifically | worth noting | is worth mentioning |
    worth pointing out | bear in mind | keep in mind | keeping in mind | with that said | that being said | having
    said that | that said | point of view | make sense | makes sense | made sense | and so on | and so forth | my
    knowledge | and large | general terms | simple terms | plain terms | at hand | in question | fair to say |
    safe to say | easy to see | clear to see | not hard to see | not difficult to see | plain to see |

    alles in allem | zum einen | aus diesem grund | aus diesen gründen | das heißt | unter anderem | auf den
    ersten blick | ersten blick | mit anderen worten | anderen worten | im großen und ganzen | wie gesagt | kurz
    gesagt | vor allem | ohne zweifel | kein zweifel | keine frage | zunächst einmal | erst einmal | ersten mal |
    sans aucun doute | aucun doute | pas de doute | en effet | à savoir | en fin de compte | tout d abord | tout
    premier abord | première vue | d autres termes | dautres termes | en bref | en somme | au total | par ailleurs
    | pour cette raison | cette raison | pour commencer | sin duda | sin lugar a dudas | es decir | en resumen |
    en total | a primera vista | primera vista | en primer lugar | primer lugar | ante todo | por otra parte |
    otras palabras | por esta razón | por ese motivo | por este motivo |

    因 此 | 所 以 | 于 是 | 那 么 | 因 而 | 从 而 | 首 先 | 其 次 | 然 后 | 接 着 | 最 后 | 此 外 | 另 外 | 同 时
    | 可 以 看 出 | 可 以 看 到 | 可 以 发 现 | 我 们 | 也 就 是 说 | 换 句 话 说 | 综 上 所 述 | 总 之 | 显 然 |
    其 实 | 事 实 上 | 实 际 上 | 很 明 显 | 具 体 来 说 | 一 般 来 说 | 根 据 | 由 此 可 见 | 从 图 中 | 图 中 |
    显 示 | 展 示 | 表 明 | 说 明 | 呈 现 | よ っ て | し た が っ て | 従 っ て | だ か ら | で す か ら | そ こ
    で | ま ず | 次 に | つ ま り | す な わ ち | ゆ え に | な の で | さ て | そ し て | ま た | さ ら に | 最
    後 に | も ち ろ ん | 実 際 に | 明 ら か に | そ れ で は | そ れ で | こ の た め | そ の た め | 以 上 か
    ら | 以 上 よ り | 示 し て い る | に よ る と | に よ れ ば"""
_MEANINGS: Final = """
    most likely = probably | most important = main | the only = sole | would like = want | very likely = probably
    | quite likely = probably | in all likelihood = probably | next to = beside | because of = since | due to =
    since | owing to = since | thanks to = since | a few = some | quite a few = many | a lot of = many | lots of =
    many | a number of = several | a great many = many | known as = called | referred to as = called | stand for =
    represent | stands for = represent | standing for = representing | stood for = represented | account for =
    constitute | accounts for = constitute | accounted for = constituted | accounting for = constituting | make up
    = constitute | makes up = constitute | made up = constituted | making up = constituting | made up of =
    comprises | consists of = comprises | consist of = comprise | consisting of = comprising | composed of =
    comprises | add up = add | adds up = adds | added up = added | adding up = adding | sum up to = add | sums up
    to = adds | carry out = perform | carries out = performs | carried out = performed | carrying out = performing
    | find out = find | finds out = finds | found out = found | figure out = determine | figures out = determines
    | figured out = determined | figuring out = determining | work out = determine | works out = determines |
    worked out = determined | working out = determining | point out = note | points out = notes | pointed out =
    noted | takes place = happens | take place = happen | took place = happened | taking place = happening | ask
    for = request | asks for = requests | asked for = requested | asking for = requesting | want to know = ask |
    wants to know = asks | wants us to = asks | want us to = ask | talk about = mention | talks about = mentions |
    talking about = mentioning | talked about = mentioned | speak of = mention | speaks of = mentions | instead of
    = instead | rather than = instead | close to = near | more or less = approximately | just about =
    approximately | or so = approximately | on top of = atop | each other = mutually | one another = mutually |
    make sure = check | makes sure = checks | making sure = checking | double check = check | double checked =
    checked | double checking = checking | keeps on = keeps | keep on = keep | the whole of = whole | on average =
    average | in order = to | such as = like | for example = instance | as opposed to = versus |

    sans doute = probablement | à peu près = environ | tandis que = alors | par conséquent = donc | de ce fait =
    donc | c est pourquoi = donc | cest pourquoi = donc | tout à fait = exactement | étant donné = puisque | il y
    a = montre | porte sur = concerne | il faut = doit | in der tat = tatsächlich | stellt dar = zeigt | steht für
    = bedeutet | stehen für = bedeuten | gibt es = zeigt | por lo tanto = entonces | por tanto = entonces | por
    eso = entonces | por ende = entonces | así pues = entonces | por consiguiente = entonces | dado que = porque |
    ya que = porque | puesto que = porque | hay que = debe | tiene que = debe | tenemos que = debemos | a causa de
    = por | más o menos = aproximadamente | 大 约 = 约 | 大 概 = 约 | 约 为 = 约 | 题 目 = 问 题 | 尋 ね = 聞 い"""

_AFTER: Final = """
    we i this that which = get gets got find finds see sees gives gave makes made |
    we i us lets = use apply employ locate choose select pick take know learn examine inspect study review |
    question task problem exercise prompt = asks ask wants want needs need is concerns says states |
    sign label text title caption heading clock scale display meter gauge thermometer banner poster sticker
    legend that which it screen = reads read says say shows states displays indicates |
    this that which other correct right left wrong same = one |
    on nous = obtient obtenons trouve trouvons utilise utilisons emploie choisit sélectionne retient prend |
    image graphique diagramme figure tableau texte question énoncé = donne fournit demande requiert nécessite |
    wir man = erhalten erhält bekommen bekommt finden findet benutzen nutzen nutzt verwenden verwendet wählen wählt |
    bild grafik diagramm tabelle text frage aufgabe = gibt verlangt sucht braucht benötigt"""
"""Verbs that after one of these words say no more than "has" or "is"; and "one", which counts nothing here."""


def verbs_after() -> dict[tuple[str, ...], str]:
    """For each phrase of a word and a verb that counts no more than a filler the verb."""
    listed: dict[tuple[str, ...], str] = {}
    for words, verbs in (line.split("=") for line in _AFTER.split("|")):
        listed |= {(word, verb): verb for word, verb in product(words.split(), verbs.split())}
    return listed


def phrases() -> dict[tuple[str, ...], str]:
    """For each phrase in words the word that it means; an empty word for those that say nothing."""
    listed = {tuple(phrase.split()): "" for phrase in _SAY_NOTHING.split("|")}
    for entry in _MEANINGS.split("|"):
        phrase, meaning = entry.split("=")
        listed[tuple(phrase.split())] = meaning.strip()
    return listed
