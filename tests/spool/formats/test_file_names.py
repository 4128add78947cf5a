"""Names of transcripts' files: inside their folder, and possible on every system."""

import pytest

from spool.formats import free_name


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("reel 1.wav", "reel 1.wav.txt"),
        ("box 7/1974/b.flac", "box 7/1974/b.flac.txt"),
        ("../../etc/passwd", "etc/passwd.txt"),
        ("C:evil", "C_evil.txt"),
        ("C:\\evil", "C_/evil.txt"),
        ("a:b", "a_b.txt"),
        ("aux", "_aux.txt"),
        ("NUL.wav", "_NUL.wav.txt"),
        ("com1/lpt9.flac", "_com1/_lpt9.flac.txt"),
        ("auxiliary", "auxiliary.txt"),
        ("what?.wav", "what_.wav.txt"),
        ("folder. /a.wav", "folder/a.wav.txt"),
        ("a\tb\x1fc", "a_b_c.txt"),
        ("", "transcript.txt"),
        ("...", "....txt"),
    ],
)
def test_a_name_is_possible_on_every_system(name: str, path: str) -> None:
    assert str(free_name(name, ".txt", "job_1", set())) == path


def test_names_that_become_alike_stay_apart() -> None:
    taken: set[str] = set()
    paths = [
        str(free_name(name, ".txt", f"job_{at}", taken)) for at, name in enumerate(("a:b", "a?b", "A_B"))
    ]
    assert paths == ["a_b.txt", "job_1 a_b.txt", "job_2 A_B.txt"]
