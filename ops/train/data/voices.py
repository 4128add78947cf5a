"""Names of the engines' voices, and a few lines of our own in languages the model does not know."""

ACCENTS = [
    "en-us",
    "en-us",
    "en-us",
    "en-gb",
    "en-gb-x-rp",
    "en-gb-scotland",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-029",
]
_VARIANTS = """
adam Alex Alicia Andrea Andy Annie antonio aunty belinda benjamin boris caleb david Denis ed
edward Gene Gene2 gustave Henrique Hugo iven iven2 Jacky john kaukovalta Lee linda marcelo Marco
Mario max Michael miguel Nguyen pablo paul pedro quincy rob robert steph steph2 steph3 f1 f2 f3
f4 m1 m2 m3 m4 m5 m6 klatt klatt2 klatt3 travis victor sandro grandma grandpa
AnxiousAndy Tweaky announcer norbert shelby zac Storm
"""
VARIANTS = _VARIANTS.split()
# For the evaluation alone.
HELD_VARIANTS = ["f5", "m7", "m8", "anika", "michel", "Diogo", "edward2", "klatt4", "iven3", "RicishayMax"]
HELD_LANGUAGES = ("nl", "sv", "pt")
_LINES = """
de: das Wetter ist heute sehr schön / wir fahren morgen mit dem Zug nach Hause / er hat das Buch gelesen
fr: il fait très beau aujourd'hui / nous prenons le train demain matin / elle a lu le livre hier soir
es: hoy hace muy buen tiempo / mañana vamos a casa en tren / ella ha leído el libro entero
it: oggi il tempo è molto bello / domani andiamo a casa in treno / ha letto il libro ieri sera
ru: сегодня очень хорошая погода / завтра мы поедем домой на поезде / она вчера прочитала книгу
pl: dzisiaj jest bardzo ładna pogoda / jutro jedziemy pociągiem do domu / ona przeczytała książkę
tr: bugün hava çok güzel / yarın trenle eve gidiyoruz / dün akşam kitabı okudu
nl: het weer is vandaag erg mooi / morgen gaan we met de trein naar huis / zij heeft het boek gelezen
sv: vädret är mycket fint idag / imorgon tar vi tåget hem / hon läste boken igår kväll
pt: hoje o tempo está muito bonito / amanhã vamos para casa de trem / ela leu o livro ontem à noite
"""  # noqa: RUF001
# Languages by espeak-ng's names; Debian's translations, under the part before the hyphen, give the texts.
_LANGUAGES = """
de fr-fr es it ru pl tr da nb cs sk hu ro uk el id ca fi gl eo hr sr bg lt lv et sl eu vi
"""
TRAINED_LANGUAGES = {name: name.split("-")[0] for name in _LANGUAGES.split()}
FOREIGN = {line[:2]: line[4:].split(" / ") for line in _LINES.strip().splitlines()}
# flite's voices and the pitch they were recorded at, hertz.
FLITE = {"awb": 125.0, "kal16": 105.0, "rms": 95.0, "slt": 170.0}
# Pico's voices by its names: one a language.
PICO = ["en-US", "en-GB"]
PICO_FOREIGN = {"de": "de-DE", "es": "es-ES", "fr-fr": "fr-FR", "it": "it-IT"}
