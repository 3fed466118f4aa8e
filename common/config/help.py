"""Text of --help, from the yaml below conf/: a command's comment, its choices, and its keys."""

import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from common.config.unused import UNUSED
from common.display.table import aligned
from common.errors import known, unknown
from common.stacks.catalog import read_catalog
from common.stacks.stack import knob_words
from common.stacks.variant import NamedStack, Variant

WIDTH = 100
RUN = "config"  # the yaml of a run; other commands also take its keys
Blocks = dict[str, list[str]]  # {key of a yaml: lines of its value and of its comment}


def overview(command: str, root: Path) -> str:
    """The comment of conf/<command>.yaml, the choices of the command, and its keys with their defaults."""
    files, groups = _parts(command, root)
    parts = [_comment(_read(root, command))]
    if groups:
        title = "Choices (NAME=VALUE); --help NAME explains values, --help NAME=VALUE one; --help variant: knobs"
        fill = partial(textwrap.fill, width=WIDTH, subsequent_indent=" " * 14)
        rows = [fill(", ".join(_names(root, name)), initial_indent=f"  {name:<12}") for name in groups]
        parts.append("\n".join([title, *rows]))
    elsewhere = _parts(RUN, root)[0] if RUN in files and command != RUN else []
    blocks = {key: block for file in files if file not in elsewhere for key, block in _blocks(root, file).items()}
    lines = [
        line
        for key, block in blocks.items()
        for line in ([f"{block[0]} (--help {key})"] if _is_section(block) else block)
    ]
    parts += ["\n  ".join(["Keys (key=value) and their defaults", *lines])] if lines else []
    if elsewhere:
        text = "Keys of a run are taken, too (python -m experiments --help), but not "
        parts.append(textwrap.fill(text + ", ".join(dict(UNUSED.values())[command]), WIDTH))
    return "\n\n".join(parts)


def about(command: str, topic: str, root: Path) -> str:
    """A line for each value of a choice, with knobs or keys; the yaml of one value; or the keys of a section."""
    files, groups = _parts(command, root)
    blocks = {key: block for file in files for key, block in _blocks(root, file).items() if _is_section(block)}
    if topic in blocks:
        return "\n".join(blocks[topic])
    topic, _, value = topic.partition("=")
    name = topic if topic in groups else topic.removesuffix("s")
    if name not in groups:
        raise unknown("topic", topic, [*groups, *blocks])
    if value:
        text = _read(root, f"{name}/{known(name, value, _names(root, name))}").removeprefix("# @package _global_\n")
        idea = f": {_idea(root, name, value)}" if name == "variant" else ""
        return f"{name}={value}{idea}\n\n{text.rstrip()}"
    parts = [f"{name}=VALUE", aligned([(value, _idea(root, name, value)) for value in _names(root, name)], "  ")]
    if name == "variant":
        knobs = [(one.name, knob) for one in read_catalog(root).variants.values() for knob in one.knobs]
        cells = [(one, *knob_words({knob.name: knob.default}), knob.describe(), knob.help) for one, knob in knobs]
        parts.append("Knobs (knob=value)\n" + aligned(cells, "  "))
    elif default := groups[name]:
        shown: set[str] = set()
        for value in sorted(_names(root, name), key=lambda value: value != default):
            if new := {key: block for key, block in _blocks(root, f"{name}/{value}").items() if key not in shown}:
                lines = [line for block in new.values() for line in block]
                parts.append("\n  ".join([f"Keys of {name}={value}, as {name}.KEY=value", *lines]))
                shown |= new.keys()
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
    unused = dict(UNUSED.values()).get(name, ()) if name != RUN else ()
    return files, {key: value for key, value in groups.items() if key not in unused}


def _blocks(root: Path, name: str) -> Blocks:
    texts = re.split(r"^(?=\w)", _read(root, name), flags=re.MULTILINE)[1:]
    blocks = {text.partition(":")[0]: text.splitlines() for text in texts if not text.startswith(("defaults", "hydra"))}
    return {key: [first, *(line for line in more if line.startswith(" "))] for key, (first, *more) in blocks.items()}


def _is_section(block: list[str]) -> bool:
    return bool(re.match(r"\w+:\s*(#|$)", block[0])) and len(block) > 1


def _comment(text: str) -> str:
    """The comment at the head of a yaml."""
    lines = re.match(r"(#.*\n)*", text)[0].splitlines()  # type: ignore[index]
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)


def _names(root: Path, group: str) -> list[str]:
    return sorted(file.stem for file in (root / "conf" / group).glob("*.yaml"))


def _idea(root: Path, group: str, name: str) -> str:
    """The idea of a variant or a stack; of another value the first sentence of its yaml's comment."""
    catalog = read_catalog(root)
    known: dict[str, Variant | NamedStack] = {**catalog.variants, **catalog.stacks}
    if group == "variant" and name in known:
        return known[name].idea
    lines = _comment(_read(root, f"{group}/{name}")).splitlines()
    comment = " ".join(line for line in lines if not line.startswith(("@package", "Run ")))
    return re.split(r"(?<=[^.]\.)\s", comment)[0]
