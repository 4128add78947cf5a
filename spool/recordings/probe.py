"""Is this file a recording? Told by its first kilobytes, so that no format is left out because of its name.

Knows the magic numbers and frame headers of the containers that libsndfile and FFmpeg's demuxers read, as
their own probes do; decodes nothing and opens nothing. A name only ever adds: a file that is called `.wav`
and is no audio becomes a job that fails and says why, rather than one that is passed over. Headerless formats
(raw GSM, G.722 and the like) are known by their names alone, since no probe can tell them from noise.
"""

import re
from collections.abc import Callable

PROBE_BYTES = 8192
"""Bytes from a file's start that a probe needs."""

RECORDING_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
        3ga 3gp 3g2 aa aac aax ac3 ac4 adts aif aifc aiff alaw amr ape asf ast au avi avr awb bwf caf dff
        dsf dss dts dtshd dv eac3 f4a f4v flac flv g722 g726 g729 gsm gxf ircam latm loas m1a m2a m2ts m4a
        m4b m4p m4r m4v mka mkv mlp mov mp1 mp2 mp3 mp4 mpa mpc mpeg mpg mpga mts mxf nist nut oga ogg ogm
        ogv oma opus qcp qt ra ram rf64 rm rmvb sf shn snd sox sph spx tak thd ts tta ulaw vob voc vox w64
        wav wave weba webm wma wmv wtv wv wvx xwma
        """,
    )
)
_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"skip", b"free", b"pnot")
_PICTURE_BRANDS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif", b"avis", b"jp2 ", b"jpx ", b"crx ")
_TEXTS = b"""
    OggS fLaC ID3 caff .snd dns. wvpk TTA1 TTA2 tBaK MPCK MP+ FRM8 ajkg .RMF #!AMR #!iLBC .SoX XoS. STRM
    DTSHDHDR NIST_1A 2BIT PVF1
    """
_BINARY = """
    2e7261fd 464c5601 c0dec2 02647373 03647373 02647332 03647332 06647332 45413303 65613303 1a45dfa3 64a30100
    64a30200 64a30300 0001a364 0002a364 000001ba 0000000001bc 1f0700 060e2b340205 3026b2758e66cf11
    726966662e91cf11 b7d800203749da11
    """
_SPACED = (b"MAC ", b"DSD ", b"Creative Voice File", b"nut/multimedia container")
_MAGICS = (*_TEXTS.split(), *map(bytes.fromhex, _BINARY.split()), *_SPACED)
_FORMS = {
    b"RIFF": (b"WAVE", b"AVI ", b"QLCM", b"XWMA"),
    b"RIFX": (b"WAVE",),
    b"RF64": (b"WAVE",),
    b"BW64": (b"WAVE",),
    b"FORM": (b"AIFF", b"AIFC", b"8SVX", b"16SV", b"MAUD"),
}
_MPEG_RATES = (
    ((0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448), 4),
    ((0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384), 144),
    ((0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320), 144),
    ((0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256), 4),
    ((0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160), 144),
    ((0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160), 72),
)
_FRAMES = 2
"""Frames of a raw stream that have to follow one another; files may be shorter."""


HIDDEN = "hidden (its name begins with a dot)"
NOT_AUDIO = "not audio: neither its content nor its name matches a format that Spool can read"
EMPTY = "empty, and its name is not that of a recording"


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is hidden, as macOS's companion files (`._reel.wav`) are."""
    return name.startswith(".")


def has_recordings_name(name: str) -> bool:
    """Whether a file of this name is taken for a recording without a look at its content."""
    return "." in name and name.rpartition(".")[2].lower() in RECORDING_NAMES


def reason_to_skip(name: str, head: Callable[[], bytes]) -> str | None:
    """Why a file makes no job, or None if it does. `head` reads its first `PROBE_BYTES`, and is called
    only where the name does not decide."""
    if is_hidden(name.rpartition("/")[2]):
        return HIDDEN
    if has_recordings_name(name):
        return None
    first = head()
    if not first:
        return EMPTY
    return None if is_audio(first) else NOT_AUDIO


def is_audio(head: bytes) -> bool:
    """Whether a file that begins so is in a format that holds audio; `head`: its first `PROBE_BYTES`."""
    if head.startswith(_MAGICS):
        return True
    if head[8:12] in _FORMS.get(head[:4], ()):
        return True
    if head[4:8] in _BOXES:
        return head[4:8] != b"ftyp" or head[8:12] not in _PICTURE_BRANDS
    return _is_stream(head)


def _is_stream(head: bytes) -> bool:
    if any(_every(head, start, step) for start, step in ((0, 188), (4, 192), (0, 204))):
        return True  # MPEG transport stream, also of cameras and with error correction
    if head[4:8] in (b"\xf8\x72\x6f\xba", b"\xf8\x72\x6f\xbb"):
        return True  # TrueHD and MLP
    if head.startswith((b"\x7f\xfe\x80\x01", b"\xfe\x7f\x01\x80", b"\x1f\xff\xe8\x00", b"\xff\x1f\x00\xe8")):
        return True  # DTS
    return any(_follow(head, size) for size in (_mpeg_frame, _adts_frame, _ac3_frame, _latm_frame))


def _every(head: bytes, start: int, step: int) -> bool:
    """Whether a sync byte stands at the head of five packets."""
    places = range(start, start + 5 * step, step)
    return len(head) > places[-1] and all(head[at] == 0x47 for at in places)


def _follow(head: bytes, size_of: Callable[[bytes], int]) -> bool:
    """Whether frames follow one another from the first byte on, as far as `head` goes."""
    at = frames = 0
    while frames < _FRAMES:
        size = size_of(head[at : at + 8])
        if size <= 0:
            return False
        frames, at = frames + 1, at + size
        if at + 8 > len(head):
            return (frames > 0 and at >= PROBE_BYTES - 8) or frames >= _FRAMES or at == len(head)
    return True


def _mpeg_frame(head: bytes) -> int:
    """Bytes in a frame of MPEG-1, 2 or 2.5 audio (ISO/IEC 11172-3, 2.4.1.3), 0 if there is none."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return 0
    version, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    index, hertz = head[2] >> 4, (44_100, 48_000, 32_000, 0)[head[2] >> 2 & 3]
    if version == 1 or layer == 4 or index in (0, 15) or not hertz:
        return 0
    hertz >>= {3: 0, 2: 1, 0: 2}[version]
    row = layer - 1 if version == 3 else (3, 4, 5)[layer - 1]
    rates, factor = _MPEG_RATES[row]
    padding = head[2] >> 1 & 1
    if layer == 1:
        return (12_000 * rates[index] // hertz + padding) * factor
    return factor * 1000 * rates[index] // hertz + padding


def _adts_frame(head: bytes) -> int:
    """Bytes in an ADTS frame of AAC (ISO/IEC 13818-7, 6.2), 0 if there is none."""
    if len(head) < 7 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 > 12:
        return 0
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return size if size > 7 else 0


def _ac3_frame(head: bytes) -> int:
    """Bytes in an AC-3 or E-AC-3 frame (ETSI TS 102 366, 4.3 and E.1.2), 0 if there is none."""
    if len(head) < 6 or head[:2] != b"\x0b\x77":
        return 0
    if head[5] >> 3 > 10:
        return 2 * ((head[2] & 7) << 8 | head[3]) + 2
    code, rate = head[4] & 63, head[4] >> 6
    if code > 37 or rate == 3:
        return 0
    kilobits = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640)[
        code >> 1
    ]
    if rate == 1:
        return 2 * (kilobits * 96_000 // 44_100 + (code & 1))
    return kilobits * (4 if rate == 0 else 6)


def _latm_frame(head: bytes) -> int:
    """Bytes in a frame of LOAS (ISO/IEC 14496-3, 1.7.2), 0 if there is none."""
    if len(head) < 3 or head[0] != 0x56 or head[1] & 0xE0 != 0xE0:
        return 0
    return 3 + ((head[1] & 0x1F) << 8 | head[2])
