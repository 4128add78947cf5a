"""Whether a multilingual Whisper recognises languages, tried on synthetic speech.

    apt-get install espeak-ng
    python -m ops.accuracy.whisper.languages MODEL

espeak-ng reads article 1 of the Universal Declaration of Human Rights in a low and a high voice. Prints for
each language what the model takes the recordings for, the probability it gives the right one, and in which
language they are read. These voices are unlike people's: the same formants read every language.
"""

# ruff: noqa: E402, RUF001 - the BLAS has to be loaded before MLX is; letters of other alphabets are meant

import argparse
import io
import subprocess

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from worker.decode.attention.reading import read_utterances
from worker.models.requests import DecodeRequest, SearchOptions
from worker.models.whisper.model import load_whisper

RATE = 16_000
VOICES = ("m1", "f2")
SAID = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und "
    "Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de "
    "raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de "
    "razón y conciencia, deben comportarse fraternalmente los unos con los otros.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di "
    "ragione e di coscienza e devono agire gli uni verso gli altri in spirito di fratellanza.",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de "
    "consciência, devem agir uns para com os outros em espírito de fraternidade.",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met "
    "verstand en geweten, en behoren zich jegens elkander in een geest van broederschap te gedragen.",
    "sv": "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med förnuft och "
    "samvete och bör handla gentemot varandra i en anda av broderskap.",
    "da": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft og "
    "samvittighed, og de bør handle mod hverandre i en broderskabets ånd.",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu "
    "järki ja omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni "
    "obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.",
    "cs": "Všichni lidé se rodí svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a "
    "svědomím a mají spolu jednat v duchu bratrství.",
    "hu": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és "
    "lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy viseltessenek.",
    "ro": "Toate ființele umane se nasc libere și egale în demnitate și în drepturi. Ele sunt înzestrate "
    "cu rațiune și conștiință și trebuie să se comporte unele față de altele în spiritul fraternității.",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve "
    "birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.",
    "id": "Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama. Mereka dikaruniai "
    "akal dan hati nurani dan hendaknya bergaul satu sama lain dalam semangat persaudaraan.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и "
    "совестью и должны поступать в отношении друг друга в духе братства.",
    "uk": "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і "
    "совістю і повинні діяти у відношенні один до одного в дусі братерства.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι "
    "προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα "
    "αδελφοσύνης.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "vi": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con người "
    "đều được tạo hóa ban cho lý trí và lương tâm và cần phải đối xử với nhau trong tình anh em.",
    "zh": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
}
ESPEAK = {"zh": "cmn", "en": "en-us"}


def speak(text: str, voice: str) -> NDArray[np.float32]:
    """The text by espeak-ng, [N] float32 at 16 kHz."""
    command = ["espeak-ng", "-v", voice, "--stdout", text]
    sound = subprocess.run(command, capture_output=True, check=True).stdout
    samples, rate = soundfile.read(io.BytesIO(sound), dtype="float32")
    return np.asarray(soxr.resample(samples, rate, RATE), np.float32)[: 30 * RATE]


def main() -> None:
    """Speak, ask and print."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.whisper.languages", description=__doc__)
    parser.add_argument("model", help="folder of a multilingual model")
    model = load_whisper(parser.parse_args().model)
    if not model.capabilities.detects:
        raise SystemExit(f"{model.name} supports only English")
    right, read, count = 0, 0, 0
    search, requests = SearchOptions(decoder="greedy"), [DecodeRequest()] * len(VOICES)
    for language, text in SAID.items():
        clips = [speak(text, f"{ESPEAK.get(language, language)}+{voice}") for voice in VOICES]
        answers = [model.detect_languages(model.encode([clip], [True]))[0] for clip in clips]
        words = [answer.language for answer in read_utterances(model, clips, search, requests)]
        right += sum(answer.best == language for answer in answers)
        read += words.count(language)
        count += len(answers)
        heard = ", ".join(
            f"{answer.best} ({answer.probabilities[language]:.2f} for {language}), read as {code}"
            for answer, code in zip(answers, words, strict=True)
        )
        print(f"{language}: {heard}", flush=True)
    print(
        f"{right} of {count} recordings in {len(SAID)} languages are told right, {read} read in the right one"
    )


if __name__ == "__main__":
    main()
