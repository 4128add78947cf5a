"""The search over transcripts, on SQLite and on PostgreSQL: words, phrases, sounds, filters, pages."""

from typing import Any

import pytest

from ops.testbed.rows import claimed, queued, reread
from ops.testbed.running_api import transcript_of
from spool.domain import (
    Alternative,
    ChunkNbest,
    Content,
    JobSpeaker,
    NbestText,
    Passage,
    Transcript,
    pairs_of,
    parse_query,
    passages_of,
)
from spool.errors import InvalidRequest
from spool.store import (
    Database,
    Hit,
    JobFilter,
    Outcome,
    TranscriptSearch,
    find_spellings,
    finish_job,
    mark_deleted,
    search_transcripts,
)

KEEPER = (
    "On the night of the storm Mister Kowalski kept the light. The fog horn was broken, and the café "
    "at the pier was dark"
)


def spoken(db: Database, text: str, **fields: Any) -> str:
    """The id of a done job with these words, each half a second after the last."""
    job = queued(db, **fields)
    finish(db, job.id, transcript_of(job.id, tuple(text.split())))
    return job.id


def finish(db: Database, job_id: str, transcript: Transcript, **facts: Any) -> None:
    claim = claimed(db, job_id)
    outcome = Outcome(30.0, f"jobs/{job_id}/t.json", "0" * 64, 1.0, len(transcript.words), **facts)
    with db.begin() as tx:
        finish_job(tx, claim, outcome, passages_of(transcript))


def found(db: Database, text: str, limit: int = 50, **wanted: Any) -> list[Hit]:
    jobs = wanted.pop("jobs", JobFilter())
    hits: list[Hit] = []
    cursor = None
    with db.read() as tx:
        while True:
            page = search_transcripts(tx, TranscriptSearch(parse_query(text), jobs, **wanted), cursor, limit)
            hits += page.items
            cursor = page.next_cursor
            if cursor is None:
                return hits


def words_of(hit: Hit) -> list[str]:
    return [" ".join(w.text for w in hit.passage.words[p.first : p.last + 1]) for p in hit.places]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("storm", ["storm"]),
        ("STORM light", ["storm", "light."]),
        ("cafe", ["café"]),
        ('"fog horn"', ["fog horn"]),
        ('"horn fog"', None),
        ('"kept the lig"*', ["kept the light."]),
        ("lig*", ["light."]),
        ("storm -fog", None),
        ("storm -snow", ["storm"]),
        ("storm NEAR/2 kowalski", ["storm Mister Kowalski"]),
        ("kowalski NEAR/2 storm", ["storm Mister Kowalski"]),
        ("storm NEAR/1 kept", None),
        ('"fog horn" NEAR/2 broken', ["fog horn was broken,"]),
        ("cowalskie~", ["Kowalski"]),
        ("kovalsky~ NEAR light", ["Kowalski kept the light."]),
        ("gorbachev~", None),
        ("absent", None),
    ],
)
def test_what_is_found_in_a_passage(db: Database, text: str, words: list[str] | None) -> None:
    spoken(db, KEEPER)
    assert [words_of(hit) for hit in found(db, text)] == ([words] if words else [])


def test_names_are_found_however_the_recogniser_spelled_them(db: Database) -> None:
    for name in ("Gorbatschow", "Gorbachev", "Gorbatchov", "garage"):
        spoken(db, f"and then {name} came")
    assert [words_of(hit) for hit in found(db, "gorbachov~")] == [
        ["Gorbatchov"],
        ["Gorbachev"],
        ["Gorbatschow"],
    ]


def test_a_phrase_is_found_once_across_two_passages(db: Database) -> None:
    spoken(db, " ".join(f"word{at}" for at in range(100)))
    [hit] = found(db, '"word39 word40 word41"')
    assert hit.passage.words[hit.places[0].first].start == pytest.approx(19.5)
    assert len(found(db, "word40")) == 1
    assert len(found(db, "word*")) == 3


def test_other_words_with_the_number_of_a_pair_are_not_its_phrase(db: Database) -> None:
    assert pairs_of(["fog", "horn"]) == pairs_of(["word47", "word765"])
    spoken(db, "horn fog word47 word765")
    assert found(db, '"fog horn"') == []
    assert len(found(db, '"word47 word765"')) == 1


def test_chinese_is_a_phrase_of_characters(db: Database) -> None:
    spoken(db, "灯 塔 看 守 人")
    assert [words_of(hit) for hit in found(db, "灯塔")] == [["灯 塔"]]
    assert found(db, "塔灯") == []


def test_the_newest_recording_comes_first_and_its_passages_in_order(db: Database) -> None:
    old = spoken(db, " ".join(["light"] * 100))
    new = spoken(db, " ".join(["light"] * 100))
    hits = found(db, "light", limit=2)
    assert [hit.job.id for hit in hits] == [new] * 3 + [old] * 3
    assert [hit.passage.words[0].start for hit in hits] == [0.0, 20.0, 40.0] * 2


def test_a_cursor_belongs_to_its_search(db: Database) -> None:
    spoken(db, " ".join(["light"] * 100))
    with db.read() as tx:
        cursor = search_transcripts(
            tx, TranscriptSearch(parse_query("light"), JobFilter()), None, 1
        ).next_cursor
        with pytest.raises(InvalidRequest, match="another query"):
            search_transcripts(tx, TranscriptSearch(parse_query("dark"), JobFilter()), cursor, 1)
        with pytest.raises(InvalidRequest, match="1 to 200"):
            search_transcripts(tx, TranscriptSearch(parse_query("dark"), JobFilter()), None, 0)


def test_the_filters_of_jobs_apply(db: Database) -> None:
    one = spoken(db, "keep the light", project="sea", tags={"reel": "42"}, name="Reel 42")
    two = spoken(db, "keep the light", project="land", batch_id="bat_1", custom_id="a")
    assert {hit.job.id for hit in found(db, "light")} == {one, two}
    assert [hit.job.id for hit in found(db, "light", jobs=JobFilter(project="sea"))] == [one]
    assert [hit.job.id for hit in found(db, "light", jobs=JobFilter(tag=("reel", "42")))] == [one]
    assert [hit.job.id for hit in found(db, "light", jobs=JobFilter(batch="bat_1"))] == [two]
    assert found(db, "light", jobs=JobFilter(project="land", name="reel")) == []
    moment = reread(db, two).created_at
    assert two in [hit.job.id for hit in found(db, "light", jobs=JobFilter(created_from=moment))]
    assert two not in [hit.job.id for hit in found(db, "light", jobs=JobFilter(created_to=moment))]


def test_a_speaker_is_found_by_label_and_by_name(db: Database) -> None:
    job = queued(db)
    transcript = transcript_of(job.id, ("keep", "the", "light", "and", "the", "light"))
    labels = ["speaker_0"] * 3 + ["speaker_1"] * 3
    words = tuple(
        word.model_copy(update={"speaker": label})
        for word, label in zip(transcript.words, labels, strict=True)
    )
    speakers = [
        JobSpeaker(label="speaker_0", name="Zoë", talk_seconds=1.0, words=3),
        JobSpeaker(label="speaker_1", name=None, talk_seconds=1.0, words=3),
    ]
    finish(db, job.id, transcript.model_copy(update={"words": words}), speakers=speakers)
    spoken(db, "no speaker keeps the light")
    assert len(found(db, "light")) == 3
    assert [hit.passage.speaker for hit in found(db, "light", speaker="speaker_1")] == ["speaker_1"]
    assert [hit.passage.speaker for hit in found(db, "light", speaker="Zoë")] == ["speaker_0"]
    assert found(db, "light", speaker="Nobody") == []


def test_a_language_is_that_of_most_of_the_transcript(db: Database) -> None:
    made = {}
    for language in ("de", "en", None):
        made[language] = queued(db).id
        finish(db, made[language], transcript_of(made[language], ("radio", "light")), language=language)
    assert len(found(db, "radio")) == 3
    assert [hit.job.id for hit in found(db, "radio", jobs=JobFilter(language="de"))] == [made["de"]]
    assert found(db, "radio", jobs=JobFilter(language="fr")) == []


def test_a_spelling_is_of_the_own_project_and_goes_with_its_last_job(db: Database) -> None:
    own, other = (spoken(db, "Kowalsky came", project=name) for name in ("sea", "land"))
    second = spoken(db, "Kowalski left and Kowalsky came", project="sea")

    def spellings(project: str | None) -> list[str]:
        with db.read() as tx:
            return sorted(find_spellings(tx, ["kflsk", "lft"], project))

    assert spellings("sea") == spellings(None) == ["kowalski", "kowalsky", "left"]
    assert spellings("land") == ["kowalsky"]
    with db.begin() as tx:
        mark_deleted(tx, [second], Content.TRANSCRIPT, "operator")
    assert spellings("sea") == ["kowalsky"]
    assert [hit.job.id for hit in found(db, "cowalski~")] == [other, own]
    with db.begin() as tx:
        mark_deleted(tx, [own, other], Content.TRANSCRIPT, "operator")
    assert spellings(None) == []


def test_a_confidence_floor_holds_for_the_words_found(db: Database) -> None:
    for at in range(8):
        job = queued(db)
        transcript = transcript_of(job.id, ("keep", "the", "light"))
        sure = [word.model_copy(update={"confidence": 0.2}) for word in transcript.words]
        words = tuple(sure) if at else transcript.words
        finish(db, job.id, transcript.model_copy(update={"words": words}))
    assert len(found(db, "light", confidence=0.1, limit=2)) == 8
    assert len(found(db, "light", confidence=0.9, limit=2)) == 1
    assert found(db, "light", confidence=0.91) == []


def test_a_deleted_transcript_is_not_found(db: Database) -> None:
    gone, kept = spoken(db, "keep the light"), spoken(db, "keep the light")
    with db.begin() as tx:
        mark_deleted(tx, [gone], Content.TRANSCRIPT, "operator")
    assert [hit.job.id for hit in found(db, "light")] == [kept]
    assert found(db, "lihgt~") == found(db, "light~") != []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Nothing to search for"),
        ("-storm", "Nothing to search for"),
        ("?! …", "Nothing to search for"),
        ("a*", "at least 3 letters"),
        ("NEAR light", "needs a word"),
        ("light NEAR", "both sides"),
        ("light NEAR/99 fog", "at most 9"),
        ('"two words"~', "one word"),
        ("the~", "four letters"),
        (" ".join(["light"] * 21), "at most 20"),
    ],
)
def test_a_query_that_cannot_be_read_says_why(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_query(text)


def test_nothing_that_a_person_types_breaks_the_database(db: Database) -> None:
    spoken(db, "it's 10:30 o'clock, 'tis late \\ & | ! * ( ) <-> : don\u2019t -- ; %_ 東京に行く")
    for text in (
        "it's",
        "10:30",
        "o'clock",
        "don't",
        "\\late",
        "a&b|c",
        "late)",
        "(late",
        "東京",
        "xyz:*",
        "%_ late",
    ):
        found(db, text)
    assert [words_of(hit) for hit in found(db, "京に")] == [["東京に行く"]]
    assert len(found(db, "DON'T")) == 1


def test_every_word_is_in_one_passage() -> None:
    words = tuple(f"w{at}" for at in range(203))
    passages: list[Passage] = passages_of(transcript_of("job", words))
    own = [word.text for passage in passages for word in passage.words[: passage.own]]
    assert own == list(words)


def with_others(words: str, others: dict[int, tuple[str, float]], *hypotheses: str) -> Transcript:
    """A transcript whose words at these places have an alternative, and its one chunk these hypotheses."""
    transcript = transcript_of("job_1", tuple(words.split()))
    spoken_words = tuple(
        word.model_copy(
            update={"alternatives": (Alternative(text=others[at][0], confidence=others[at][1]),)}
            if at in others
            else {}
        )
        for at, word in enumerate(transcript.words)
    )
    texts = (words, *hypotheses)
    chunk = ChunkNbest(
        start=0.0,
        end=transcript.audio.duration,
        hypotheses=tuple(NbestText(text=text, score=-float(at)) for at, text in enumerate(texts)),
    )
    return transcript.model_copy(update={"words": spoken_words, "nbest": (chunk,) if hypotheses else ()})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kowalski", [("cove alley", "Kowalski", None)]),
        ('"mister kowalski"', [("Mister cove alley", "Mister Kowalski", None)]),
        ("kowalski night", [("night", None, 0.9), ("cove alley", "Kowalski", None)]),
        ("cowalskie~", [("cove alley", "Kowalski", None)]),
        ("lamps", [("light", "lamps", 0.25)]),
        ('"the lam"*', [("the light", "the lamps", 0.25)]),
        ("lamps NEAR/1 kept", [("kept the light", "kept the lamps", 0.25)]),
        ("lamps -light", [("light", "lamps", 0.25)]),
        ("light", [("light", None, 0.9)]),
        ("lamps -night", []),
        ("lamps kowalski", []),
        ('"kept lamps"', []),
    ],
)
def test_what_was_heard_beside_the_transcript_is_found_where_asked(
    db: Database, text: str, expected: list[tuple[str, str | None, float | None]]
) -> None:
    words = "that night Mister cove alley kept the light"
    job = queued(db)
    heard = "that night Mister Kowalski kept the light"
    finish(db, job.id, with_others(words, {7: ("lamps", 0.25)}, heard))
    spoken(db, "somebody else speaks here")
    plain = [hit.job.id for hit in found(db, text)]
    assert plain == ([job.id] if all(reading is None for _, reading, _ in expected) and expected else [])
    hits = found(db, text, alternatives=True)
    matched = [
        (
            " ".join(word.text for word in hit.passage.words[place.first : place.last + 1]),
            place.text or None,
            place.confidence_in(hit.passage),
        )
        for hit in hits
        for place in hit.places
    ]
    assert matched == expected


def test_an_alternative_obeys_filters_and_confidence_and_goes_with_its_transcript(db: Database) -> None:
    jobs_ids = []
    for project in ("sea", "land"):
        job = queued(db, project=project)
        finish(db, job.id, with_others("they kept the light", {3: ("lamps", 0.25)}, "they swept the light"))
        jobs_ids.append(job.id)
    asked = {"alternatives": True}
    assert [hit.job.id for hit in found(db, "lamps", limit=1, **asked)] == jobs_ids[::-1]
    assert [hit.job.id for hit in found(db, "lamps", jobs=JobFilter(project="sea"), **asked)] == jobs_ids[:1]
    assert len(found(db, "lamps", confidence=0.2, **asked)) == 2
    assert found(db, "lamps", confidence=0.3, **asked) == []
    assert len(found(db, "swept", **asked)) == 2
    assert found(db, "swept", confidence=0.1, **asked) == []
    with db.begin() as tx:
        mark_deleted(tx, jobs_ids[:1], Content.TRANSCRIPT, "operator")
    assert [hit.job.id for hit in found(db, "lamps", **asked)] == jobs_ids[1:]
    assert [hit.job.id for hit in found(db, "lampz~", **asked)] == jobs_ids[1:]


def test_common_words_of_the_transcript_do_not_hide_an_alternative(db: Database) -> None:
    job = queued(db)
    finish(db, job.id, with_others("they kept the light", {3: ("lamps", 0.25)}))
    for _ in range(5):
        spoken(db, "the lamps " * 20)
    hits = found(db, "lamps", limit=2, alternatives=True)
    assert len(hits) == 6
    assert hits[-1].job.id == job.id


@pytest.mark.parametrize(
    "asked", ["42 waited", '"waited 42"', "days NEAR/1 42", "42 NEAR/1 days", "forty two -storm"]
)
def test_a_number_is_found_in_words(db: Database, asked: str) -> None:
    job_id = spoken(db, "we waited forty-two days")
    spoken(db, "we waited 24 days")
    assert [hit.job.id for hit in found(db, asked)] == [job_id]
    assert [hit.job.id for hit in found(db, asked, alternatives=True)] == [job_id]
