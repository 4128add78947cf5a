"""Which folder has to exist before a transcript is written to somebody's folders."""

from pathlib import Path

import pytest

from spool.objects.outputs import output_root


@pytest.mark.parametrize(
    ("allowed", "root"),
    [
        ("file:///data/archive/", "/data/archive"),
        ("file:///data/archive/{project}/", "/data/archive"),
        ("file:///data/archive/out-{project}/", "/data/archive"),
        ("file:///data/tape%201/", "/data/archive/film/box"),
        ("s3://data/archive/", "/data/archive/film/box"),
    ],
)
def test_the_folder_that_was_configured_has_to_exist(allowed: str, root: str) -> None:
    assert output_root("file:///data/archive/film/box/", [allowed]) == Path(root)


def test_of_two_folders_one_in_the_other_it_is_the_inner_one() -> None:
    allowed = ["file:///data/", "file:///data/archive/", "file:///data/elsewhere/"]
    assert output_root("file:///data/archive/film/", allowed) == Path("/data/archive")
