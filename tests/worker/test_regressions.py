"""Files that a fuzzer once broke a reader with (`ops/bench/fuzz*.py`): each is read, or refused for good."""

from pathlib import Path

import pytest

from spool.errors import AudioError, InvalidRequest, ModelError
from worker.audio import Channels, open_audio
from worker.decode import read_arpa
from worker.models import read_config

FOLDER = Path(__file__).with_name("regressions")


@pytest.mark.parametrize("channels", ["mix", "separate"])
@pytest.mark.parametrize("path", sorted((FOLDER / "audio").iterdir()), ids=lambda path: path.name)
def test_a_recording_that_broke_a_reader_is_read_or_refused_by_name(
    path: Path, channels: Channels, capfd: pytest.CaptureFixture[str]
) -> None:
    refused: AudioError | None = None
    try:
        with open_audio(path, channels=channels, max_seconds=600) as stream:
            samples = sum(map(len, stream.blocks()))
    except AudioError as error:
        refused = error
    if refused is None:
        assert samples > 0
    else:
        assert refused.message.startswith(f"{path.name}: ")
        assert not refused.retryable
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", sorted((FOLDER / "config").iterdir()), ids=lambda path: path.name)
def test_a_configuration_that_broke_the_loader_is_refused_by_name(path: Path) -> None:
    with pytest.raises(ModelError, match=str(path)):
        read_config(path)


@pytest.mark.parametrize("path", sorted((FOLDER / "arpa").iterdir()), ids=lambda path: path.name)
def test_a_language_model_that_broke_the_reader_is_refused_by_name(path: Path) -> None:
    pieces = tuple("abcdefgh")
    with pytest.raises(InvalidRequest, match=str(path)):
        read_arpa(path, pieces)
