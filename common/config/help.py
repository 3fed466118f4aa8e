"""Text of --help, from the yaml below conf/: a command's comment, its choices, and its keys."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from common.errors import unknown
from common.stacks.catalog import read_catalog

WIDTH = 100
RUN = "config"  # the yaml of a run; other commands also take its keys


def overview(command: str, root: Path) -> str:
    """The comment of conf/<command>.yaml, the choices of the command, and its keys with their defaults."""
    files, groups = _parts(command, root)
    parts = [_comment(_read(root, command))]
    if groups:
        title = "Choices (NAME=VALUE); --help NAME explains each value, and --help variant lists knobs"
        rows = [_wrapped(name, ", ".join(_names(root, name))) for name in groups]
        parts.append("\n".join([title, *rows]))
    elsewhere = _parts(RUN, root)[0] if RUN in files and command != RUN else []
    lines = [
        line
        for file in files
        if file not in elsewhere
        for key, block in _keys(root, file)
        for line in _short(key, block)
    ]
    parts.append("\n".join(["Keys (key=value) and their defaults", *(f"  {line}" for line in lines)]))
    if elsewhere:
        parts.append("Keys of a run are taken, too: python -m experiments --help")
    return "\n\n".join(parts)


def about(command: str, topic: str, root: Path) -> str:
    """A line for each value of a choice, with variants' knobs or the default's keys; or the keys of a section."""
    files, groups = _parts(command, root)
    sections = {key: block for file in files for key, block in _keys(root, file) if _is_section(block)}
    if topic in sections:
        return "\n".join(sections[topic])
    name = topic if topic in groups else topic.removesuffix("s")
    if name not in groups:
        raise unknown("topic", topic, [*groups, *sections])
    parts = [f"{name}=VALUE", "\n".join(_values(root, name))]
    if name == "variant":
        parts.append("\n".join(["Knobs (knob=value)", *_knobs(root)]))
    elif groups[name] and (keys := [line for _, block in _keys(root, f"{name}/{groups[name]}") for line in block]):
        parts.append(
            "\n".join([f"Keys of {name}={groups[name]}, as {name}.KEY=value", *(f"  {line}" for line in keys)])
        )
    return "\n\n".join(parts)


def _read(root: Path, name: str) -> str:
    return (root / "conf" / f"{name}.yaml").read_text(encoding="utf-8")


def _parts(name: str, root: Path) -> tuple[list[str], dict[str, str | None]]:
    """A yaml and its includes, and the default of each group in their defaults lists."""
    files: list[str] = [name]
    groups: dict[str, str | None] = {}
    defaults: list[Any] = OmegaConf.to_container(OmegaConf.create(_read(root, name))).get("defaults", [])  # type: ignore[union-attr]
    for entry in defaults:
        if isinstance(entry, str) and entry != "_self_":
            more, chosen = _parts(entry, root)
            files += more
            groups |= chosen
        elif isinstance(entry, dict):
            groups |= {key: value for key, value in entry.items() if " " not in key}
    return files, groups


def _keys(root: Path, name: str) -> Iterator[tuple[str, list[str]]]:
    """Each key of a yaml with the lines of its value and of its comment."""
    for block in re.split(r"^(?=\w)", _read(root, name), flags=re.MULTILINE)[1:]:
        key = block.partition(":")[0]
        if key not in ("defaults", "hydra"):
            first, *more = block.splitlines()
            yield key, [first, *(line for line in more if line.startswith(" "))]


def _is_section(block: list[str]) -> bool:
    return bool(re.match(r"\w+:\s*(#|$)", block[0])) and len(block) > 1


def _short(key: str, block: list[str]) -> list[str]:
    return [f"{block[0]} (--help {key})"] if _is_section(block) else block


def _comment(text: str) -> str:
    """The comment at the head of a yaml."""
    lines = re.match(r"(#.*\n)*", text)[0].splitlines()  # type: ignore[index]
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)


def _names(root: Path, group: str) -> list[str]:
    return sorted(file.stem for file in (root / "conf" / group).glob("*.yaml"))


def _wrapped(name: str, text: str) -> str:
    indent = " " * 14
    return textwrap.fill(text, WIDTH, initial_indent=f"  {name:<12}", subsequent_indent=indent)


def _values(root: Path, group: str) -> list[str]:
    """Each value of a group: a variant with its idea, others with the first sentence of the yaml's comment."""
    catalog = read_catalog(root)
    ideas = {name: variant.idea for name, variant in catalog.variants.items()}
    ideas |= {name: stack.idea for name, stack in {**catalog.stacks, **catalog.tuned}.items()}
    about = {
        name: ideas.get(name) or _sentence(_comment(_read(root, f"{group}/{name}"))) for name in _names(root, group)
    }
    width = max(map(len, about), default=0)
    return [f"  {name:{width}}  {text}" for name, text in about.items()]


def _sentence(comment: str) -> str:
    lines = (line for line in comment.splitlines() if not line.startswith(("@package", "Run ")))
    return re.split(r"(?<=[^.]\.)\s", " ".join(lines))[0]


def _knobs(root: Path) -> list[str]:
    knobs = [(variant.name, knob) for variant in read_catalog(root).variants.values() for knob in variant.knobs]
    cells = [(name, f"{knob.name}={knob.default}", knob.describe(), knob.help) for name, knob in knobs]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    rows = ["  ".join(["", *map(str.ljust, row, widths), row[-1]]) for row in cells]
    return rows or ["  (no variant has one yet)"]
