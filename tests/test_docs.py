"""The documentation names only what exists: files, modules, functions, settings, commands, links, anchors."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from api.cli.main import build_app as build_spool
from ops import command_line, families
from spool.settings import Settings
from worker.cli.main import build_app as build_worker

APPS = {"spool": build_spool(), "spool-worker": build_worker()}
ROOT = Path(__file__).parent.parent
TOP = ("api", "spool", "worker", "kernels", "migrations", "ops", "tests", "docs", "models", "samples")
ENDINGS = "py|md|metal|h|sh|yml|yaml|json|jsonl|js|toml|svg|txt|flac"
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "models/**/*.md", "samples/**/*.md", "ops/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "LOG.md"  # a diary: it names files as they were called then
)
NOT_OURS = {"name.metal", "model_config.yaml"}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def sources() -> str:
    """All text in which a setting may be read."""
    files = [ROOT / "Makefile", ROOT / "docker-compose.yml"]
    for top in ("api", "spool", "worker", "kernels", "migrations", "ops", "tests"):
        files += [path for path in (ROOT / top).rglob("*") if path.suffix in {".py", ".sh", ".yml", ".env"}]
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())


@cache
def file_names() -> set[str]:
    return {path.name for top in TOP for path in (ROOT / top).rglob("*.*")} | {
        path.name for path in ROOT.glob("*.*")
    }


def module_file(dotted: str) -> tuple[Path, list[str]] | None:
    """The file of the longest prefix of a dotted name that is a module, and the names after it."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:length])
        for path in (folder.with_suffix(".py"), folder / "__init__.py"):
            if path.is_file():
                return path, parts[length:]
    return None


@each_page
def test_every_path_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    pattern = rf"(?<![\w/.~*-])(?:{'|'.join(TOP)})/[\w./-]*\.(?:{ENDINGS})\b(?!\w)"
    folders = re.findall(rf"`((?:{'|'.join(TOP)})(?:/[\w-]+)+/?)`", text)
    missing = [name for name in [*re.findall(pattern, text), *folders] if not (ROOT / name).exists()]
    assert not missing


def test_every_room_is_on_the_map() -> None:
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8").partition("### Where is")[0]
    rooms = {
        f"{floor}/{room.name}/"
        for floor in ("api", "spool", "worker", "kernels")
        for room in (ROOT / floor).iterdir()
        if room.is_dir() and any(path.suffix != ".pyc" for path in room.rglob("*.*"))
    }
    assert rooms - set(re.findall(r"`([\w/]+/)`", text)) == set()


@each_page
def test_every_source_file_named_alone_exists(page: Path) -> None:
    names = re.findall(r"`(\w+\.(?:py|metal|sh|yml))`", page.read_text(encoding="utf-8"))
    assert not set(names) - file_names() - NOT_OURS


@each_page
def test_every_module_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    run = re.findall(rf"python3? -m ((?:{'|'.join(TOP)})(?:\.\w+)*)", text)
    missing = [
        name
        for name in run
        if not (ROOT.joinpath(*name.split(".")).with_suffix(".py")).is_file()
        and not (ROOT.joinpath(*name.split("."), "__main__.py")).is_file()
    ]
    for name in re.findall(rf"`((?:{'|'.join(TOP[:7])})(?:\.\w+)+)(?:\(.*?\))?`", text):
        if name.endswith((".log", ".pid", ".db", ".dump")):
            continue
        source = module_file(name)
        if source is None or any(part not in source[0].read_text(encoding="utf-8") for part in source[1]):
            missing.append(name)
    assert not missing


@each_page
def test_every_name_said_to_be_in_a_file_is_there(page: Path) -> None:
    wrong = []
    for name, path in re.findall(r"`(\w+)` in `([\w./-]+\.\w+)`", page.read_text(encoding="utf-8")):
        if path.startswith(tuple(f"{top}/" for top in TOP)):
            source = (ROOT / path).read_text(encoding="utf-8")
            if not re.search(rf"\b(?:def|class) {name}\b|^{name}\b.* = ", source, re.MULTILINE):
                wrong.append(f"{name} in {path}")
    assert not wrong


@each_page
def test_every_setting_is_read_somewhere(page: Path) -> None:
    names = set(re.findall(r"\bSPOOL_[A-Z0-9_]*[A-Z0-9]\b", page.read_text(encoding="utf-8")))
    fields = {f"SPOOL_{name.upper()}" for name in Settings.model_fields}
    unknown = {
        name
        for name in names - fields
        if name.removesuffix("_FILE") not in fields and not re.search(rf"\b{name}\b", sources())
    }
    if page.name == "CHANGELOG.md":
        unknown -= set(re.findall(r"`(SPOOL_\w+)` → ", page.read_text(encoding="utf-8")))
    assert not unknown


def commands(text: str) -> Iterator[list[str]]:
    """Every call of `spool` and `spool-worker` in the code blocks and inline code, as its words."""
    blocks = re.findall(r"^```(?:console|sh)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"((?:^    \S.*\n)+)", without_code(text), flags=re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", without_code(text))
    call = re.compile(
        r"^\s*(?:\$ )?(?:\w+=\S+ )*(?:sudo )?(?:\w+=\$\()?(?:\.venv/bin/)?(spool(?:-worker)?) (\S.*)$"
    )
    for line in lines:
        if match := call.match(line.split("#")[0].split(" | ")[0]):
            yield [match[1], *match[2].split()]


def complaint(words: list[str]) -> str | None:
    """What is wrong with a call; None where each subcommand and option exists."""
    command, rest = APPS[words[0]], words[1:]
    while (below := [name for name in command if name[0] != "-"]) and rest:
        if rest[0].startswith(("-", "…", "COMMAND")):
            break
        if rest[0] not in below:
            return f"{' '.join(words)}: no command {rest[0]}"
        command, rest = command[rest[0]], rest[1:]
    known = {"--help", "--help-all", *(name for name in command if name.startswith("-"))}
    if command.default_command is not None:
        for argument in command.assemble_argument_collection():
            known |= {*argument.names, *argument.negatives}
    options = {word.partition("=")[0].rstrip(",;)") for word in rest if re.match(r"--?[a-z]", word)}
    return f"{' '.join(words)}: no option {sorted(options - known)}" if options - known else None


def test_the_reference_of_the_commands_is_that_of_their_declarations() -> None:
    page = command_line.PAGE.read_text(encoding="utf-8")
    assert page == command_line.with_reference(page), "run: .venv/bin/python -m ops.command_line"


def test_the_lines_of_each_family_are_counted() -> None:
    page = (families.MODELS.parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
    assert families.table() in page, "run: .venv/bin/python -m ops.families"


@each_page
def test_every_command_and_option_exists(page: Path) -> None:
    complaints = [complaint(words) for words in commands(page.read_text(encoding="utf-8"))]
    assert not [text for text in complaints if text]


def test_the_commands_of_the_pages_are_looked_at() -> None:
    every = [words for page in PAGES for words in commands(page.read_text(encoding="utf-8"))]
    assert len(every) > 80
    assert complaint(["spool", "submit", "--no-such-option"])
    assert complaint(["spool", "no-such-command"])


@each_page
def test_a_page_has_one_title(page: Path) -> None:
    titles = re.findall(r"^# .*$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    assert len(titles) == 1


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings]
    return {word.replace(" ", "-") for word in words}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            broken.append(target)
    assert not broken
