"""The most frequent short words of twenty languages: words that are no names and carry little meaning."""

# ruff: noqa: E501
# Two lines a language read better than three.

from typing import Final

_WORDS: Final = {
    "en": "the of and to is in that it for as with on this are be was so we which have has from by at an but or if not "
    "there its they can then than what how between each shows both i will would my let about a do does me you no were been "
    "these those because while only also when where more most just first next into over",
    "de": "der die das und ist in zu den von mit auf für nicht ein eine einen dem des sich auch im als aus bei es wir "
    "sind wird hat daher also dass wie nach um bis oder aber haben kann noch beträgt zeigt welche",
    "fr": "le la les de des du et est un une en dans que qui pour pas sur au aux avec ce cette par plus sont il elle "
    "nous donc ou mais a été entre comme on se ne d'un d'une l'on c'est quelle quel ainsi alors cela",
    "es": "el la los las de del y es un una en que por para con no se al lo más como son su este esta hay entonces pero "
    "o entre cuál cuántos tiene muestra muy también porque cada está eso si fue",
    "it": "il la lo gli le di del della e è un una in che per con non si al i da più come sono nel nella dei delle "
    "questo questa quindi ma o anche ha tra quanto qual perché ogni quale allora dal alla",
    "pt": "o a os as de do da dos das e é um uma em no na que por para com não se ao mais como são seu sua este esta "
    "então mas ou entre qual quantos tem mostra também porque cada está isso foi pelo pela nos",
    "nl": "de het een en is van in op te dat die voor met niet aan er zijn om als ook bij door uit naar we dus maar of "
    "wat hoe dan tussen heeft deze dit worden wordt kan nog meer welke elke",
    "pl": "i w na jest nie to że się z do o jak ale po co tak za od jego czy dla są ten ta przez więc oraz który która "
    "które tylko może między ile jaki jaka każdy mamy wynosi jeśli tym lub",
    "vi": "là và của có không một các cho trong được với này đó khi những để người từ đến ta thì nhiều bao nhiêu màu "
    "cột vậy do vì theo trên nào hơn đã",
    "tr": "ve bir bu için ile da de olan daha çok ne gibi kadar var sonra olarak en değil ki ise göre bunu şu o iki "
    "grafikte kaç hangi arasındaki ama çünkü her mi ya",
    "id": "yang dan di dari untuk dengan ini itu adalah pada tidak ke dalam akan oleh juga atau ada lebih karena jadi "
    "kita sebagai berapa apa adalah antara maka dapat bisa setiap jumlah telah",
    "sv": "och att det är en som på av för med den till i inte har om ett kan så men de från vi var eller ska vid mellan "
    "också hur vilken detta denna sedan alltså mer än",
    "da": "og at det er en som på af for med den til i ikke har om et kan så men de fra vi var eller skal ved mellem "
    "også hvor hvilken dette denne derfor mere end hvad",
    "cs": "a je v se na to že s z do o jak ale po co tak za od jeho pro jsou který která které nebo mezi kolik tedy "
    "není by jako při tento tato máme každý pokud",
    "ro": "și de la în este cu pe un o nu că pentru din mai sunt care se al ale să dar sau între cât câte are acest "
    "această deci prin dacă fi lui cel",
    "ru": "и в не на что с по это как из то для от но же все к у за так или если между на есть мы больше чем поэтому "
    "значит который сколько какой равно бы при его",
    "uk": "і в не на що з по це як із то для від але ж всі до у за так або якщо між є ми більше ніж тому отже який "
    "скільки та при його",
    "ar": "في من على إلى أن هو هي هذا هذه التي الذي ما لا مع عن كان كل بين إذا أو ثم هل لذلك كم و",
    "fa": "در از به که این است را با برای آن و یک می بر تا هم اما یا شود های اگر بین چند پس",
    "hi": "है के की का में और से को यह हैं पर कि एक नहीं तो भी हम या जो कितने कितना इस लिए क्या था",
}

STOP_WORDS: Final = {language: frozenset(words.split()) for language, words in _WORDS.items()}
"""Lower-case words by language."""
