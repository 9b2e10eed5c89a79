"""Classes of words in and around a plain clause; `distill.answers.texts.plain_clauses` uses them."""

from typing import Final

_TEXT: Final = """
joins: aber and but e et i.e mais o oder or ou pero than that then und when where whereas which while who whose y;
attaches: above across against along am around at auf aus avec behind bei below beside between by com con da dans
    de del des do du during en for from im in inside into mit na near next no of on onto outside over sobre sur
    through under unter von vor with without über;
open_prepositions: about als as at auf aus avec by com comme como con d da dans de del des di do du en for from im
    in inside into mit nach of on onto par por sur through to via von with within zum zur;
moving: about from into onto to;
failing: attacked attacks avoided avoids beat beats canceled cancelled crossed crosses dislikes dropped drops
    excluded excludes faces facing followed follows forgets forgot hates hides ignored ignores imitates lacked
    lacks leaves left loses lost mimics missed misses passed passes preceded precedes prevented prevents refused
    refuses rejected rejects removed removes resembles served stopped stops surrounded surrounds threatens;
placing: atrás bajo debajo delante derrière detrás devant embaixo hinter neben sopra sotto sous unter vor über;
asks_for_any: did do does doing get had has have having look looking looks see seen show shown use used uses using;
copies: drawing figure image logo painting photo photograph picture statue symbol view;
measures: bottle bowl box bunch can couple cup form full glass group kind lot made pair part piece pile plate row
    set slice sort stack type variety;
national: czech dutch french greek hms rms swiss thai uk us uss;
known: als aus avoir bar billion c'est column comme como curve d' document don doña drawn form frau gibt got haben
    hay herr herrn l' laut letter line lo m madame man memo million mme monsieur on percent que qui segment sehen
    señor señora sido sieht slice sr sra thousand trata voit wird worden wurde y été;
adjectives: bare blank blond blonde bold brunette calm clean cold cool cute deep flat hard hot huge loose loud
    matte mid modern nice plain quiet rich rough sharp simple smooth soft steep strong thick thin tight tiny warm
    weak;
shades: chiaro clair claire clara claro escura escuro foncé foncée oscura oscuro scuro;
untied: across after also and behind beside likely near next only opposite partly since what which while who
"""
_CLASSES: Final = {
    name.strip(): frozenset(words.split())
    for name, _, words in (line.partition(":") for line in _TEXT.strip().split(";"))
}
JOINS: Final = _CLASSES["joins"]
"""Words that begin a second statement or join two things."""
ATTACHES: Final = _CLASSES["attaches"]
"""Words after an answer that begin what only describes or places it."""
OPEN_PREPOSITIONS: Final = _CLASSES["open_prepositions"]
"""Prepositions between a verb and its answer that leave the answer what it is."""
MOVING: Final = _CLASSES["moving"]
"""Prepositions that make of a thing another one: the book is about Stephen King."""
FAILING: Final = _CLASSES["failing"]
"""Verbs whose object is not what a question asks for."""
PLACING: Final = _CLASSES["placing"]
"""Prepositions of place in other languages."""
ASKS_FOR_ANY: Final = _CLASSES["asks_for_any"]
"""Verbs of a question that leave open how its answer is tied to it."""
COPIES: Final = _CLASSES["copies"]
"""What is of a thing and is not the thing."""
MEASURES: Final = _CLASSES["measures"]
"""Nouns that only say how much there is of the answer."""
NATIONAL: Final = _CLASSES["national"]
"""Words before a name that are no part of it."""
KNOWN: Final = _CLASSES["known"]
"""Words that state or count something and are no answer."""
ADJECTIVES: Final = _CLASSES["adjectives"]
"""Adjectives that no ending tells."""
SHADES: Final = _CLASSES["shades"]
"""Shades of a colour in Romance languages, after it."""
UNTIED: Final = _CLASSES["untied"]
"""Words of a remark that do not take the answer back."""
_TOPICS_TEXT: Final = """
    auteur author autor autora autorin geschrieben writer written wrote | shop store | newspaper paper | url website
    | from sender sent | firma firmante signature signed signer | departs departure leaves | bound destination fährt
    goes going headed | arbeitet job occupation profession trabaja travaille works | made material | called title
    titled | called name named | belongs owner owns | document form letter memo report | drawing painting picture |
    perched standing stands | perched seated sits sitting | lies lying | got wearing wears worn | biggest first
    greatest highest largest leads most tops | fewest last least lowest smallest | hangs liegt lies sits sitzt
    stands steht | assis couché trouve | published publisher | carries carrying held holding holds | cooking makes
    making preparing | kind sort type | made maker manufacturer produced
"""
TOPICS: Final = tuple(frozenset(topic.split()) for topic in _TOPICS_TEXT.split("|"))
"""Words of a question and its answer that speak of the same: who wrote it, the author is."""
