"""Runs the steps of a Dockerfile in a folder with `chroot`, for machines without containers.

    python3 ops/images/dockerfile.py FILE TARGET ROOT        # as root, from the repository's root
    python3 ops/images/dockerfile.py FILE TARGET --steps     # only prints the steps

It refuses every instruction that our files do not use, so that what it runs is what an image builder would.
For FROM of an outside image the caller has put a stand-in into ROOT. Standard library only: it runs before
there is an environment.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

KNOWN = {"FROM", "ARG", "ENV", "RUN", "COPY", "WORKDIR", "USER", "CMD", "ENTRYPOINT"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NotUnderstood(Exception):
    """An instruction that this cannot run as an image builder would."""


@dataclass(frozen=True)
class Step:
    """One instruction, continuation lines joined."""

    line: int
    word: str
    rest: str


@dataclass
class Image:
    """What stands at the end of the steps: environment, user, folder, command."""

    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: str = "root"
    folder: str = "/"
    command: list[str] = field(default_factory=list)


def read_steps(text: str) -> Iterator[Step]:
    """The instructions in order. Raises NotUnderstood."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines)[1]
        word, _, rest = line.strip().partition(" ")
        if word not in KNOWN:
            raise NotUnderstood(f"line {number}: {word}")
        yield Step(number, word, rest.strip())


def steps_of(text: str, target: str) -> list[Step]:
    """The steps of a target, those of the stages that it builds on first. Raises NotUnderstood."""
    stages: dict[str, tuple[str, list[Step]]] = {}
    steps: list[Step] = []
    for step in read_steps(text):
        if step.word == "FROM":
            match = re.fullmatch(r"(\S+)(?: AS (\S+))?", step.rest)
            if match is None:
                raise NotUnderstood(f"line {step.line}: FROM {step.rest}")
            steps = []
            stages[match[2] or "last"] = (match[1], steps)
        else:
            steps.append(step)
    if target not in stages:
        raise NotUnderstood(f"no stage {target}: there are {', '.join(stages)}")
    below, own = stages[target]
    return (steps_of(text, below) if below in stages else []) + own


def run_steps(steps: list[Step], root: Path, context: Path) -> Image:
    """Run them in `root` with the files of `context`. Raises CalledProcessError, NotUnderstood."""
    image = Image()
    for step in steps:
        print(f"--- line {step.line}: {step.word} {step.rest}", flush=True)
        if step.word == "RUN":
            subprocess.run(
                command_in(root, image, ["/bin/sh", "-c", step.rest]), check=True, env={"PATH": PATH}
            )
        elif step.word == "COPY":
            _copy(step, root, context, image.folder)
        else:
            _note(step, image)
            (root / image.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return image


def command_in(root: Path, image: Image, command: list[str], **more: str) -> list[str]:
    """`command` as the image's user, in its folder and environment, with `more` variables."""
    entry = next(
        line.split(":")
        for line in (root / "etc/passwd").read_text().splitlines()
        if line.startswith(image.user + ":")
    )
    variables = [f"{name}={value}" for name, value in {**image.environment, "HOME": entry[5], **more}.items()]
    inside = f"cd {shlex.quote(image.folder)} && exec {shlex.join(command)}"
    owner = f"--userspec={entry[2]}:{entry[3]}"
    return ["chroot", owner, str(root), "/usr/bin/env", "-i", *variables, "/bin/sh", "-c", inside]


def _note(step: Step, image: Image) -> None:
    if step.word == "ENV":
        image.environment |= dict(pair.split("=", 1) for pair in shlex.split(step.rest))
    elif step.word == "WORKDIR":
        image.folder = step.rest
    elif step.word == "USER":
        image.user = step.rest
    elif step.word in {"CMD", "ENTRYPOINT"}:
        image.command = [part.strip(' "') for part in step.rest.strip("[]").split(",")]
    else:
        raise NotUnderstood(f"line {step.line}: {step.word} {step.rest}")


def _copy(step: Step, root: Path, context: Path, folder: str) -> None:
    """Files under the target's name or into it; of a folder what is in it. What .dockerignore leaves out is
    not there for an image builder, nor here."""
    *sources, target = step.rest.split()
    if any(source.startswith("--") for source in sources):
        raise NotUnderstood(f"line {step.line}: COPY {step.rest}")
    place = root / os.path.join(folder, target).lstrip("/")
    into = target.endswith("/") or len(sources) > 1
    for name in sources:
        source = context / name
        if ignored(name, (context / ".dockerignore").read_text()):
            raise NotUnderstood(f"line {step.line}: .dockerignore leaves out {name}")
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            goal = place / source.name if into else place
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, goal)


def ignored(name: str, rules: str) -> bool:
    """Whether .dockerignore's `rules` leave `name` out: the last one that speaks of it, or of a folder above,
    wins."""
    out = False
    parts = name.strip("./").split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for rule in (line.strip() for line in rules.splitlines()):
        if rule and not rule.startswith("#") and any(fnmatch(path, rule.lstrip("!")) for path in above):
            out = not rule.startswith("!")
    return out


def main() -> None:
    file, target, root = sys.argv[1:]
    steps = steps_of(Path(file).read_text(), target)
    if root == "--steps":
        print("\n".join(f"{step.line}\t{step.word} {step.rest}" for step in steps))
        return
    run_steps(steps, Path(root), Path.cwd())


if __name__ == "__main__":
    main()
