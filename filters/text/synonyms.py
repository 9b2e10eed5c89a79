"""Word lists by which two English questions are compared: words that say nothing, and words that say the same.

Words of one group are taken for one word, inflections included (`filters.matching.question_match.stem`); irregular
forms are listed. A group holds words that can be exchanged in a question about a picture, not all that a dictionary
calls synonyms.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SMALL = _words(
    """a an the this that these those there here it its of in on at to for by with within from into as is are was were
    be been being am do does did has have had having will would can could shall should may might must and or but if
    then so than s t d ll re ve m what which how about during throughout upon onto approximately roughly around per
    between among across over i me my you your we us our they their them he his she her one any some each every all
    both such same also just only please kindly thanks thank now"""
)
INSTRUCTION = _words(
    """image picture photo photograph figure chart graph plot diagram illustration screenshot visual above below
    following given shown displayed depicted presented provided pictured visible seen illustrated tell give say state
    find determine identify calculate compute work out look looking see examine consider carefully closely based
    according reference referring question answer answers reply respond response using use single word words phrase
    short brief briefly concise directly choose select pick option options letter choice choices correct right step
    think reasoning explain detail exact exactly precisely correctly let know want need like able help quickly hint
    data information task problem solve provide write report numerical check glance observe view simply hello hi hey
    figures sir madam dear advance appreciate wonder wondering curious"""
)
ALWAYS_CONTENT = _words("right above below letter letters word words report")
"""Instruction words that can be what is asked about, as in "the value on the right"."""
MEDIA = _words("image picture photo photograph figure chart graph plot diagram table shown given depicted")
ORDER_MATTERS = _words("than from minus ratio before after over to less subtract subtracted divided by")
STRICT_ORDER = _words("than minus ratio less subtract subtracted divided")
"""The things before and after these words must not change places."""
UNDOING = _words("not no never without except excluding nor neither unlike none cannot")
LIGHT_VERBS = _words("show display depict exhibit have possess contain include feature represent indicate")
"""Verbs that can be left out or exchanged: "which bar shows the highest value", "which bar has the highest value"."""

_COUNTING = """zero||two second twice double|three third thrice triple|four fourth quarter|five fifth|six sixth
|seven seventh|eight eighth|nine ninth|ten tenth|eleven eleventh|twelve twelfth|thirteen|fourteen|fifteen
|sixteen|seventeen|eighteen|nineteen|twenty"""
NUMBERS = {word: str(value) for value, words in enumerate(_COUNTING.split("|")) for word in words.split()} | {
    **{"first": "1", "half": "0.5", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70"},
    **{"eighty": "80", "ninety": "90", "hundred": "100", "thousand": "1000", "million": "1000000"},
    "billion": "1000000000",
}

_SYNONYMS = """total sum combined altogether overall aggregate | largest biggest highest greatest maximum max most
tallest | smallest lowest least minimum min fewest | difference gap differ | average mean | number
count many much amount quantity | color colour hue | gray grey | percent percentage pct | start
begin began begun commence | end finish conclude | increase rise rose risen grow grew grown growth
climb | decrease fall fell fallen drop decline reduce shrink shrank shrunk | large big | small
little tiny | kind type sort | person people individual human | man men guy gentleman | woman women
lady | child children kid | boy lad | girl lass | baby infant | car automobile | bicycle bike |
motorcycle motorbike | airplane aeroplane plane aircraft | truck lorry | taxi cab | television tv |
telephone phone | cellphone smartphone | fridge refrigerator | couch sofa | rug carpet | cup mug |
trousers pants | spectacles eyeglasses | hat cap | bag sack | garbage trash rubbish | store shop |
street road | sidewalk pavement | film movie | location place position | company firm corporation |
author writer | buy buying bought purchase | sell sold | represent show shown indicate denote stand
depict display exhibit | value reading | year annual yearly | name title called | country nation |
city town | happen occur | near close nearby | beside next adjacent | cost price | student pupil |
teacher instructor | job occupation profession | doctor physician | police cop | employee worker |
customer client | sick ill | quick fast rapid | trip journey | minus subtract less subtracted | plus
added add | times multiplied multiply | hold held carry | wear wore worn | sit sat seated | ride
rode ridden riding | eat ate eaten eating | drink drank drunk | build built construct | send sent
mail | get got gotten obtain receive | earn gain | record note noted | regard concern | agreement
deal contract | sign approve | department division | region area zone | category group class |
kilogram kilo kg | kilometre kilometer km | metre meter | centimetre centimeter cm | litre liter |
hour hr | dollar usd buck | speed velocity | share proportion fraction | salary wage | expense
expenditure | product item goods | letter character | mention state stated | belong pertain | main
primary chief | entire whole | different distinct | equal identical | happy glad cheerful | angry
mad | pretty beautiful | afraid scared | rock stone | forest woods | ocean sea | house home |
apartment flat | elevator lift | cookie biscuit | dish plate | coat jacket | sweater jumper pullover
| purse handbag | backpack rucksack | suitcase luggage | tap faucet | oven stove | monitor screen |
mom mother mum | dad father | enough sufficient | help assist | travel travelled traveled drive
drove driven | stop halt | repair fix | throw threw thrown toss | run ran | jump leap | center
centre middle | forecast predict | survey poll | participant respondent"""
GROUPS: tuple[tuple[str, ...], ...] = tuple(tuple(group.split()) for group in _SYNONYMS.split("|"))

CONTRASTS = _words(
    """red blue green yellow orange purple pink brown black white gray cyan magenta teal maroon navy violet gold
    silver beige turquoise light dark left right top bottom upper lower north south east west northern southern
    eastern western middle inner outer front back horizontal vertical largest smallest total average median ratio
    difference number percent increase decrease more fewer higher lower longer shorter taller larger smaller bigger
    longest shortest oldest newest youngest older newer younger best worst last next previous before after early late
    earlier later first second plus minus times divided product male female man woman boy girl mother father son
    daughter brother sister husband wife king queen yes no true false not never without except january february march
    april may june july august september october november december monday tuesday wednesday thursday friday saturday
    sunday morning afternoon evening night day week month year import export revenue profit loss income expense urban
    rural public private positive negative hot cold warm open closed start end circle square triangle rectangle line
    bar pie row column axis dot star who where when why range mode buy sell sum inside outside enter leave win lose
    won lost arrive depart"""
)
"""A question with another one of these words is always another question, also in a long text with the same answers.
"""
