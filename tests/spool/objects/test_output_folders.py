"""Which folder has to be there, with its disk, before a transcript is written to somebody's folders."""

from pathlib import Path

import pytest

from spool.errors import OutputMissing
from spool.objects.output_folders import OutputFolders, output_root
from tests.faults.small_disk import can_mount, small_disk


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


def test_a_folder_that_is_not_there_is_missing_until_it_is(tmp_path: Path) -> None:
    folders = OutputFolders([f"{(tmp_path / 'share').as_uri()}/"])
    prefix = f"{(tmp_path / 'share' / 'box 4').as_uri()}/"
    with pytest.raises(OutputMissing, match=r"There is no folder .*share: mount its disk"):
        folders.check(prefix)
    (tmp_path / "share").mkdir()
    folders.check(prefix)


@pytest.mark.integration
@pytest.mark.skipif(not can_mount(), reason="only root on Linux can mount a disk")
def test_a_folder_that_lost_its_disk_is_missing_until_it_has_it_again(tmp_path: Path) -> None:
    share = tmp_path / "share"
    folders = OutputFolders([f"{share.as_uri()}/"])
    with small_disk(share, 1):
        folders.check(f"{share.as_uri()}/")
    with pytest.raises(OutputMissing, match="no longer mounted"):
        folders.check(f"{share.as_uri()}/box/")
    with small_disk(share, 1):
        folders.check(f"{share.as_uri()}/box/")
