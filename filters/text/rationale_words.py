"""English words of rationales that can be added, left out or exchanged without a change of meaning.

`FILLERS` says nothing of a picture: articles, forms of "to be", and words that lead from one thought to the next.
Words of one group of `same_words` can stand for each other in a rationale, inflections included; irregular forms are
listed; groups that share a word are one. `changing_words` change the meaning where they are added. A word of no list
equals only itself.
"""

from collections.abc import Iterator
from typing import Final

from filters.text.exchangeable_words import CHANGES, ENGLISH, FOREIGN, FOREIGN_FILLERS, FOREIGN_GROUPS
from filters.text.synonyms import CONTRASTS, GROUPS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS: Final = FOREIGN_FILLERS | _words(
    """a an the this that these those it its there here which who whom is are was were be been being am do does did
    has have had having would can could of to for in at by with as from per and but so thus hence then therefore
    thereby accordingly consequently correspondingly subsequently indeed fact actually really clearly obviously
    evidently apparently plainly visibly simply just quite rather very also too further furthermore moreover
    besides additionally addition again now already still yet okay ok well alright hmm hm ah oh aha so course
    note notice noting notably noteworthy remarkably importantly interestingly curiously notably naturally
    basically essence essentially fundamentally general generally overall summary sum conclusion conclude
    finally lastly eventually ultimately altogether case cases result results such since because given
    considering based following according judging going we i us me my our you your let lets see seen look
    looking view opinion think believe guess recall however nevertheless nonetheless though although while
    whereas when if specific specifically particular particularly especially precisely exactly respective
    respectively carefully closely directly immediately quickly step actual certain certainly definitely surely
    undoubtedly indeed truly literally instance example eg ie namely means meaning says regard regarding respect
    concerning among amongst within throughout during im ive id weve were lets thats its theres heres whats
    where wherein whereby thereof please next afterwards afterward meanwhile hereby answer answers answered
    response responses reply solution reasoning thinking"""
)

_SAME: Final = """
    image picture photo photograph photography figure illustration | answer response reply solution | show display
    depict exhibit illustrate portray feature shown | suggest imply indicate hint signal | signify denote | use
    utilise utilize employ apply | help assist aid | need require necessary needed | get receive obtain got gotten
    received | call term name dub | assume suppose presume imagine | regard view consider deem see | find locate
    discover found | choose select pick opt chose chosen selected | classify rate categorise categorize rank |
    control direct govern steer manage | improve raise enhance boost better | keep retain kept remain stay | suffice
    enough sufficient adequate | suitable appropriate fitting proper apt | fair reasonable sensible plausible | main
    chief primary principal key major central | possible available feasible | probable likely probably presumably |
    maybe perhaps possibly | explosive violent | cold cool chilly colder cooler | safe better safer | big large
    sizable | huge enormous gigantic massive vast | small little | tiny minuscule minute | quick fast rapid swift |
    slow sluggish | begin start commence began begun | end finish conclude terminate | stop halt cease | happen
    occur take-place arise | explain clarify elucidate | describe characterise characterize outline | check verify
    confirm validate | examine inspect study analyse analyze investigate scrutinise scrutinize observe | compute
    calculate work-out determine evaluate | deduce infer derive gather | decide settle resolve | prove demonstrate
    establish | contain include comprise hold | consist composed | surround encircle enclose | connect link join |
    attach fasten fix | make create produce generate | build construct erect built | change alter modify vary |
    convert transform turn | move shift | carry transport convey bear | bring fetch brought | give provide supply
    offer yield gave given | allow permit enable let | prevent hinder block stop | try attempt endeavour endeavor |
    continue proceed go-on carry-on | search seek look-for | ask question inquire enquire | tell inform | speak talk
    | say state mention remark claim assert | read interpret | write wrote written | match fit suit correspond agree
    | appear seem look | point aim | refer relate pertain | represent stand-for symbolise symbolize | symbolic
    figurative symbolically figuratively | style stylistically | general broad | common frequent widespread usual
    typical | often frequently commonly | usually normally typically ordinarily | always invariably | sometimes
    occasionally | rarely seldom | almost nearly practically virtually | roughly approximately approx
    circa about around | initially originally |
    slightly somewhat | entirely completely fully totally wholly | mostly mainly largely chiefly primarily
    predominantly | should ought | may might | must | buy purchase bought | sell vend sold | pay paid | cost price |
    near close nearby adjacent | beside alongside | beneath underneath under | important significant crucial
    essential vital | hard difficult tough | easy simple straightforward | correct right accurate | wrong incorrect
    mistaken false | clear obvious evident apparent plain | strange odd unusual peculiar | different distinct
    differing | similar alike comparable | equal identical same | whole entire | part portion piece section segment
    | kind type sort | way method approach manner | reason cause | outcome consequence effect | aim goal purpose
    objective | idea notion concept thought | detail particular | place spot location position site | area region
    zone | edge border rim | side flank | middle centre center | bottom base | person individual human | people
    persons folks | child kid children kids | job task | trip journey | car automobile | street road | house home |
    shop store | film movie | sofa couch | hat cap | glasses spectacles | happy glad cheerful joyful | sad unhappy
    sorrowful | angry mad furious | afraid scared frightened | calm peaceful quiet tranquil | pretty beautiful
    lovely attractive | smart clever intelligent | rich wealthy | sick ill | tired weary | old aged elderly | new
    recent | wide broad | thin slim slender | thick fat | wet damp moist | dirty unclean | shiny glossy | holiday
    vacation | autumn fall-season | rubbish garbage trash | grey gray | colour color | metre meter | centre center |
    labelled labeled | travelled traveled | because since | also additionally | therefore thus | climb rise ascend
    increase go-up grow climbed rose risen grew grown | drop fall decline decrease sink dropped fell fallen sank |
    reach attain hit | exceed surpass | compare contrast comparison | differ vary | remove delete | separate divide
    split | combine merge unite | replace substitute | reduce lower diminish lessen | strong powerful | weak feeble
    | bright luminous | dark dim | tall high | below beneath | above over | famous well-known renowned | normal
    regular ordinary | | number count amount quantity | share proportion fraction percentage | average mean |
    maximum highest largest greatest biggest | minimum lowest smallest least | value reading figure-value | symbol
    sign | mark label labelled labeled | line stroke | row line-row | title heading caption header | text wording
    writing | paragraph passage | sentence phrase | question query | option choice alternative | statement claim
    assertion | fact truth | error mistake | doubt uncertainty | note remark comment | rule principle | feature
    characteristic trait | benefit advantage | drawback disadvantage | teacher instructor | pupil student | doctor
    physician | boss manager | worker employee | firm company business | sure certain confident | able capable |
    ready prepared | careful cautious | exact precise | rest remainder remaining | wear worn wore dressed | hold
    held holding grip grasp | sit seated sitting sat | standing stood | lying | walk stroll | run running ran jog |
    follow proceed | | | base found | reveal disclose uncover expose unveil | highlight emphasise emphasize stress
    underline underscore | mention cite quote | list enumerate itemise itemize | recognise recognize identify |
    distinguish differentiate | remember recollect | understand comprehend | realise realize | expect anticipate
    predict foresee | estimate gauge approximate | | round approximate | solve resolve work-out | draw sketch drew
    drawn | paint painted | fill occupy | cover span extend stretch | support back-up justify | confirm corroborate
    substantiate | contradict oppose conflict | correspond match | eliminate exclude rule-out discard | require
    demand | lack miss | own possess belong | rely depend hinge | lead result | trigger provoke spark | influence
    affect impact | encourage motivate urge | persuade convince | attract draw-in | appeal | warn caution alert |
    advise recommend counsel | instruct command | permit authorise authorize | forbid prohibit ban | protect guard
    shield defend | attack assault | destroy ruin demolish | damage harm hurt injure | repair fix mend | clean wash
    | cook prepare | serve dish | arrange organise organize | gather collect assemble | spread scatter disperse |
    hide conceal | lift hoist | drop let-fall | place put lay set laid | store save | spend use-up | earn gain | win
    gain won | lose lost | fight battle | meet encounter met | visit attend | travel journey voyage | arrive come
    reach came | leave depart exit | enter go-into | return come-back | wait await | sleep slumber doze | wake
    awaken | watch observe | hear listen | smell scent odour odor | taste flavour flavor | touch feel felt | love
    adore | like enjoy | hate detest | want wish desire | prefer favour favor | hope | fear dread | worry concern |
    famous celebrated | bold daring brave courageous || polite courteous | rude impolite | honest truthful | lazy
    idle | busy occupied | noisy loud | silent quiet | sharp pointed | blunt dull | smooth even-surface | rough
    coarse | soft gentle | firm solid-hold | flexible pliable | fragile delicate | heavy weighty | light-weight |
    long lengthy | short brief | narrow slim | deep | shallow | round circular | flat level | steep | crooked bent |
    curved | packed crowded | empty vacant | modern contemporary | ancient antique | previous prior preceding
    earlier former | following subsequent next later | final last ultimate | initial first-one | additional extra
    further | numerous many several | various diverse | single sole | unique sole | rare uncommon scarce | typical
    characteristic usual | odd weird | logical rational | relevant pertinent | useful helpful handy | useless
    pointless | harmful damaging detrimental | dangerous hazardous risky unsafe | healthy fit well | sudden abrupt |
    gradual steady slow | constant steady | frequent regular | immediate instant | temporary | permanent lasting |
    visible noticeable discernible | invisible unseen hidden | vague unclear fuzzy blurry blurred | precise accurate
    | intended meant designed | made consist | used employed | given provided supplied | known | located situated
    positioned placed | shaped formed | attached affixed | parked | printed | displayed | depicted | drawn | surely
    certainly | merely solely | together jointly | apart separately | instead rather | otherwise | likewise
    similarly | conversely | unlike | despite notwithstanding | regarding concerning | via through | upon | toward
    towards | beyond past | amid | versus against | plus | until till | once | whenever | wherever | everyone
    everybody | someone somebody | nobody no-one | anyone anybody | everything | something | problem issue | topic
    subject theme | message | meaning significance sense | evidence proof | clue hint indication cue | pattern trend
    tendency | relationship relation connection link | link tie bond | gap | shape form | structure build
    composition | surface | background backdrop | foreground | scene setting | view vista | border boundary frontier
    | corner | object item thing | tool instrument device | machine apparatus | vehicle | container vessel | pupil
    learner | spectator viewer onlooker observer | reader | author writer | artist painter | customer client shopper
    buyer | seller vendor | passenger traveller traveler | owner proprietor | leader chief-of | colleague coworker |
    friend pal mate | crowd throng | group cluster bunch | pair couple | team squad | meal repast | fee charge |
    salary wage pay | money cash funds | speed pace velocity | strength power force | height elevation | size
    dimension | weight mass heaviness | length | start beginning onset outset | finish ending end conclusion | peak
    top summit maximum apex | rise increase growth | decline decrease fall drop reduction | change shift alteration
    | difference discrepancy | similarity resemblance | chance likelihood probability odds | risk hazard danger |
    effort attempt | skill ability talent | habit custom | law regulation | disease illness sickness | medicine drug
    medication | injury wound | stomach belly | nation country state-land | town | forest wood woodland | stone rock
    | ocean sea | soil earth | path trail track | field meadow | hill mound | weather climate | storm tempest |
    breeze wind | rain shower | fog mist | warm | boil | burn | shine gleam glow | therefore | accordingly | ship
    vessel boat | plane aeroplane airplane | bicycle bike | picture-frame | carpet rug | bin trashcan | jump leap
    hop | throw toss threw thrown | catch caught | push shove | pull drag | smile grin | laugh chuckle | cry weep |
    shout yell scream | eat eating ate eaten consume | drink drank drunk sip |
    closest nearest | chart graph plot graphic visual visualisation visualization |
    diagram schematic depiction | drawing sketch |
    statement claim assertion | reason rationale explanation justification | method approach procedure technique
    strategy way manner process | aspect facet | detail particular | example instance case | evidence proof | clue
    hint cue | purpose aim goal objective intention | idea notion concept thought | problem issue | task
    assignment exercise | pattern regularity | trend tendency | relationship relation correlation | category kind
    type sort class | part portion section segment | area region zone | object item thing | information info |
    topic subject theme | mood atmosphere ambience | option alternative choice | criterion requirement condition |
    factor element component | assumption premise | meaning significance sense | amount quantity | device gadget |
    tool implement | caption heading | tally count | clutch hold | sport wear | conceivable possible | label tag |
    say said | lead led | hold held | begin began begun | grow grew grown | run ran | drink drank | drive drove
    driven | ride rode ridden | speak spoke spoken | theatre theater | neighbour neighbor | programme program |
    favourite favorite | behaviour behavior | honour honor | labour labor | humour humor | flavour flavor |
    harbour harbor | rumour rumor | vapour vapor | armour armor | catalogue catalog | dialogue dialog | judgement
    judgment | jewellery jewelry | kerb curb | plough plow | mould mold | aluminium aluminum | aeroplane airplane
    | fibre fiber | litre liter | traveller traveler | cancelled canceled | modelling modeling | skilful skillful
    | fulfil fulfill | enrol enroll | licence license | defence defense | offence offense | pyjamas pajamas |
    sceptical skeptical | organise organize | organisation organization | realise realize | colourful colorful |
    neighbourhood neighborhood | centred centered | manoeuvre maneuver | each every | neighbouring neighboring
    adjacent | supports backs | hidden concealed | only merely solely | constant steady continuous | add adding
    summing summed | bigger larger greater | quicker faster swifter | cooler chillier colder |
    broader wider | slimmer thinner | wealthier richer | nearer closer | simpler easier |
    noisier louder | wetter damper | quieter calmer | happier gladder | cleverer smarter | tougher harder |
    diagram graphic figure | find determine"""
_NO_ADVERBS: Final = _words(
    """hard near late bare short large scarce most part high low year day month week hour even just real main
    chief near close direct present sole first last like ill bad good fair pretty rare just"""
)
"""Words of which an adverb in -ly means another thing, or is listed elsewhere."""


_UNLIKE: Final = frozenset(["fraction", "men", "women"])
"""Words of groups for questions that are others in a rationale: as a fraction, as a percentage; a man, men."""


def _forms(word: str) -> Iterator[str]:
    """A word with its regular inflections; those that do not exist are in no text."""
    yield word
    stem = word[:-1] if word.endswith("e") else word
    yield from (f"{word}s", f"{word}es", f"{stem}ed", f"{stem}ing")
    if word.endswith("y"):
        yield from (f"{word[:-1]}ies", f"{word[:-1]}ied")
    if len(word) > 2 and word[-1] not in "aeiouwxy" and word[-2] in "aeiou" and word[-3] not in "aeiou":
        yield from (f"{word}{word[-1]}ed", f"{word}{word[-1]}ing")


def _adverb(word: str) -> str:
    """The adverb of an adjective; the word itself where its meaning may be another one."""
    if word in _NO_ADVERBS or len(word) < 4:
        return word
    return f"{word[:-1]}ily" if word.endswith("y") else f"{word[:-2]}ly" if word.endswith("le") else f"{word}ly"


def same_words() -> dict[str, str]:
    """For each word the word that stands for all words of its meaning; groups that share a word are one."""
    names: dict[str, str] = {}
    for group in (*(tuple(words.split()) for words in _SAME.split("|")), *GROUPS):
        listed = (word for word in group if "-" not in word and word not in FILLERS and word not in _UNLIKE)
        forms = {form for word in listed for form in _forms(word)}
        joined = {names[form] for form in forms if form in names}
        if joined:
            forms |= {form for form, name in names.items() if name in joined}
        names |= dict.fromkeys(forms, min(forms, default=""))
    for word, name in list(names.items()):
        names.setdefault(_adverb(word), name)
    names |= {word: names.get(group[0], group[0]) for group in FOREIGN_GROUPS for word in group if word not in names}
    return names


_CHANGING: Final = CONTRASTS | _words(
    """only even almost nearly hardly barely scarcely off out without against unless until instead rather alone both
    either neither nor all any some every each few many most least half part partly different same opposite reverse
    mirror former ex anti non un fake former past future possible impossible maybe perhaps probably likely must may
    might should doubt seem appear false true wrong stop avoid prevent fail lack miss refuse deny reject nobody
    nothing nowhere longer absent missing fewer will"""
)


def changing_words() -> frozenset[str]:
    """Words that change the meaning where they are added, with their inflections."""
    return frozenset(form for word in _CHANGING for form in _forms(word)) | CHANGES


def exchangeable_words() -> frozenset[str]:
    """`filters.text.exchangeable_words` with their inflections."""
    words = frozenset(form for word in ENGLISH for form in _forms(word)) | FOREIGN
    return words - changing_words() - FILLERS
