"""Words with which a rationale speaks of its own steps: exchanging them does not change its meaning.

They are verbs of showing, stating and concluding, and adjectives of relevance. Of two opposites at most one is
listed, and no word for a thing, a degree, a property, or an action that a picture may show ("helps", "uses"): those
count nothing only after "we" (`filters.text.phrases`). `filters.text.rationale_words` has the words that say nothing,
and groups of words that mean the same; those groups may hold words that are in no list here ("rises", "climbs").
English with regular inflections; German, French and Spanish as they stand. `CHANGES` are words of these three
languages that change what is said.
"""

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENGLISH: Final = _words(
    """show display depict exhibit present illustrate portray describe represent reflect convey express capture
    indicate suggest imply hint signify denote symbolise symbolize state declare assert mention remark observe
    notice spot perceive interpret understand explain clarify elucidate elaborate summarise summarize outline
    detail determine establish ascertain identify recognise recognize pinpoint calculate compute tally check
    verify confirm validate analyse analyze investigate scrutinise scrutinize assess consider deem contemplate
    conclude infer deduce derive gather list enumerate term dub entitle designate highlight emphasise emphasize
    stress underline underscore reveal disclose uncover solve resolve tackle comprise consist constitute span
    belong pertain relate fit suit correspond demonstrate account recall attribute ascribe assign associate
    specify define formulate word refer cite quote concentrate value figure outcome say regard continue proceed
    note obtain insert substitute plugging plugged together

    suitable appropriate fitting proper apt adequate applicable pertinent relevant reasonable sensible plausible
    credible believable logical rational main principal chief primary key central major essential crucial vital
    pivotal important significant decisive fundamental particular specific correct accurate exact precise related
    corresponding associated respective aforementioned given

    evidently plainly undoubtedly doubtless unquestionably undeniably assuredly unmistakably patently manifestly
    admittedly incidentally correctly accurately properly consequently accordingly anew altogether namely such
    owing thanks via sure noted point view needless expected glance strictly speaking words matter happens theyre
    hes shes youre theyll itll youd theyd"""
)
_IRREGULAR: Final = _words("shown said told meant given saw understood thought")

GERMAN: Final = _words(
    """ist sind scheint fragt zeigt zeigen gezeigt veranschaulicht veranschaulichen stellt stellen dargestellt
    darstellt dar präsentiert bildet abgebildet ab illustriert verdeutlicht sieht sehen gesehen erkennt erkennen
    erkannt bemerkt bemerken beobachtet bedeutet bedeuten heißt heißen besagt beträgt betragen ergibt ergeben
    lautet entspricht folgt folgen enthält enthalten umfasst umfassen beinhaltet gehört gehören zählt zählen nennt
    nennen erwähnt erwähnen angibt bestimmt bestimmen ermittelt ermitteln berechnet berechnen prüft prüfen
    überprüft betrachtet betrachten untersucht schließt schließen folgert vermutet annehmen passt passen stimmt
    belegt beweist bestätigt erklärt beschreibt deutet daher deshalb deswegen darum somit folglich demnach
    dementsprechend richtig korrekt zutreffend wichtig bedeutsam wesentlich passend geeignet angemessen dabei
    nämlich hierbei demzufolge infolgedessen mithin sich wird aussage behauptung gefragt"""
)
FRENCH: Final = _words(
    """montre montrent montrer indique indiquent indiquer présente présentent représente illustre affiche révèle voit
    voient aperçoit remarque distingue constate signifie signifient contient contiennent comprend comprennent
    comporte compte semble paraît calcule détermine identifie vérifie considère conclut déduit décrit explique
    mentionne nomme précise suggère confirme prouve donc ainsi alors juste correcte exacte importante essentiel
    essentielle convenable approprié appropriée adapté adaptée pertinente effectivement notamment également aussi
    principale voici effet fait peu près conséquent conséquence"""
)
SPANISH: Final = _words(
    """muestra muestran presenta presentan indica indican representa representan ilustra refleja aparece ve ven
    observa observan significa contiene contienen incluye comprende parece calcula determina identifica verifica
    comprueba considera supone concluye corresponde explica menciona nombra sugiere confirma entonces así pues
    correcto correcta adecuado adecuada importante esencial efecto hecho también además consiguiente"""
)
_FOREIGN_GROUPS: Final = """
    zahl anzahl | abbildung grafik bild schaubild darstellung | prix tarif tarifs | valor dato cifra | beginnt
    startet | ungefähr etwa zirka rund | genau exakt präzise | häufig oftmals | zuerst zunächst | danach
    anschließend daraufhin | vollständig ganz gänzlich komplett | deutlich klar eindeutig | wahrscheinlich
    vermutlich voraussichtlich | äußerst überaus | offensichtlich offenbar offenkundig augenscheinlich | jedoch
    allerdings | weil da denn | obwohl obgleich | bekommt erhält | ähnlich vergleichbar | verschieden
    unterschiedlich | sofort sogleich | reste demeure | commence débute | termine finit | environ
    approximativement | exactement précisément | souvent fréquemment | ensuite puis | enfin finalement |
    probablement vraisemblablement | entièrement complètement totalement | clairement nettement | évidemment
    manifestement visiblement | cependant toutefois néanmoins pourtant | immédiatement aussitôt | semblable
    similaire | empieza comienza | termina acaba | queda permanece | probablemente posiblemente | exactamente
    precisamente | luego después | completamente totalmente | claramente evidentemente obviamente | pide solicita
    | braucht benötigt | benutzt verwendet nutzt | benutzen verwenden nutzen | wählt auswählt | gefragt gesucht |
    donne fournit | donnent fournissent | utilise emploie | utilisent emploient | choisit sélectionne retient |
    demande requiert nécessite | usa utiliza emplea | elige selecciona escoge | requiere necesita"""
FOREIGN_GROUPS: Final = tuple(tuple(group.split()) for group in _FOREIGN_GROUPS.split("|"))
"""Words of these languages with the same meaning. Their opposites are in other groups or in none."""
FOREIGN: Final = GERMAN | FRENCH | SPANISH | _IRREGULAR

FOREIGN_FILLERS: Final = _words(
    """tatsächlich natürlich eben freilich selbstverständlich übrigens zudem außerdem ebenfalls genaugenommen
    effectivement évidemment bien sûr ailleurs fait naturellement"""
)
"""Words of other languages that say nothing and are no English words."""

CHANGES: Final = _words(
    """keinen keinem keines nichts niemand nirgends ohne nie niemals immer stets selten manchmal mehr weniger kaum
    fast nur außer statt links rechts oben unten vorne hinten innen außen über unter vor hinter neben zwischen
    größer kleiner höher niedriger länger kürzer älter jünger größte kleinste höchste niedrigste steigt steigen
    stieg fällt fallen fiel sinkt sinken sank wächst schrumpft alle einige viele wenige manche jeder jede jedes
    beide keiner muss müssen darf dürfen soll sollen kann können könnte würde wurde möchte anfang ende offen
    geschlossen voll leer warm kalt heiß hell dunkel alt neu groß klein hoch niedrig tief lang kurz rot blau grün
    gelb schwarz weiß braun grau rosa orange violett lila rote blaue grüne gelbe schwarze weiße braune graue roten
    blauen grünen gelben schwarzen weißen braunen grauen rotes blaues grünes gelbes schwarzes weißes weder noch

    sans jamais toujours rarement parfois moins plus davantage sauf excepté gauche droite haut bas dessus dessous
    devant derrière avant après sous sur dans dehors entre hors supérieur supérieure inférieur inférieure grand
    grande petit petite haute basse long longue court courte meilleur pire monte descend augmente diminue croît
    décroît tous toutes quelques chaque plusieurs beaucoup peu aucun aucune doit peut doivent peuvent ouvert
    ouverte fermé fermée plein vide chaud froid rouge bleu bleue vert verte jaune noir noire blanc blanche gris
    grise marron rouges bleus bleues verts vertes noirs blancs ni

    sin nunca jamás siempre raramente veces menos más excepto salvo izquierda derecha arriba abajo encima debajo
    delante detrás antes bajo sobre dentro fuera mayor menor mejor peor sube baja aumenta disminuye crece todos
    todas algunos algunas cada muchos pocos ningún ninguna debe puede abierto cerrado lleno vacío caliente frío
    rojo roja azul verde amarillo amarilla negro negra blanco blanca gris"""
)
