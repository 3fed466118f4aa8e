"""Headers that a text includes: found in folders, or made here in place of those of a C++ library, which NVRTC has not.

A compiled text depends on all of them, so a key of the cache has their content.
"""

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import LabError

# Empty: for host code, or known to NVRTC without them.
EMPTY = frozenset({"assert.h", "ctype.h", "math.h", "stdio.h", "stdlib.h", "string.h", "sys/time.h", "time.h",
                   "unistd.h", "cassert", "cctype", "chrono", "cstdio", "cstdlib", "cstring", "ctime", "exception",
                   "fstream", "functional", "iomanip", "iostream", "map", "memory", "mutex", "new", "queue", "random",
                   "set", "sstream", "stdexcept", "string", "thread", "unordered_map", "vector"})  # fmt: skip
LIBRARY = "cuda/std"  # CUDA's own library, whose headers stand for those of the same names
RENAMED = {"float.h": "cfloat", "limits.h": "climits", "stddef.h": "cstddef", "stdint.h": "cstdint"}
FORWARD = "#include <{0}/{1}>\nnamespace cuda::std {{}}\nnamespace std {{ using namespace cuda::std; }}\n"
_COMMENTS = r"(?:\s|/\*.*?\*/)*"
_INCLUDE = re.compile(rf'(?:#|%:){_COMMENTS}include(?:_next)?\b{_COMMENTS}(?:<([^>\n]+)>|"([^"\n]+)")?', re.DOTALL)


@dataclass(frozen=True)
class FoundHeaders:
    """Headers of one text. options: NVRTC's for the folders; own: texts of those made here; sha: of the content of the
    others, () without any, None where the text names one by a macro, so that they cannot be known."""

    options: tuple[str, ...] = ()
    own: dict[str, str] = field(default_factory=dict)
    sha: tuple[str, ...] | None = ()


@dataclass(frozen=True)
class Headers:
    """Folders to search, in this order. cuda: CUDA's own, which do not change; they come last."""

    folders: tuple[Path, ...] = ()
    cuda: tuple[Path, ...] = ()

    def found(self, text: str) -> FoundHeaders:
        """All headers that `text` and its headers name, whatever a condition around them says."""
        if not self.folders:
            return FoundHeaders()
        own, sha = dict[str, str](), hashlib.sha256()
        seen, left = set[Path](), [(self.folders[0], *_names(text))]
        known = True
        while left:
            beside, plain, names = left.pop()
            of_cuda = any(map(beside.is_relative_to, self.cuda))
            known = known and (plain or of_cuda)
            for name in names:
                paths = dict.fromkeys(folder / name for folder in (beside, *self.folders, *self.cuda))
                files = [path for path in paths if path.is_file()]
                if not files and name not in own and (made := self._made(name, of_cuda)) is not None:
                    own[name] = made
                    left.append((self.folders[0], *_names(made)))
                for path in files:
                    if path not in seen:
                        seen.add(path)
                        content, scanned = (_scanned if any(map(path.is_relative_to, self.cuda)) else _scan)(path)
                        sha.update(f"{path}\0{content}\0".encode())
                        left.append((path.parent, *scanned))
        options = tuple(f"-I{folder}" for folder in (*self.folders, *self.cuda)) if seen or own else ()
        return FoundHeaders(options, own, ((sha.hexdigest(),) if seen else ()) if known else None)

    def _made(self, name: str, of_cuda: bool) -> str | None:
        """The text of a missing header. of_cuda: CUDA's headers name it, which do without C++'s."""
        if of_cuda and not name.endswith(".h"):
            return None
        if name in EMPTY:
            return ""
        standard = RENAMED.get(name, name)
        there = any((folder / LIBRARY / standard).is_file() for folder in self.cuda)
        return FORWARD.format(LIBRARY, standard) if there else None


def cuda_folders(library: Path) -> tuple[Path, ...]:
    """Folders of CUDA's headers beside NVRTC's library: of a wheel of all (cu13), of a wheel each, or of a toolkit."""
    root = library.resolve().parent.parent
    wheels = [*root.parent.glob("*/include")] if root.parent.name == "nvidia" else []
    found = (each for folder in (root / "include", *sorted(wheels)) for each in (folder, folder / "cccl"))
    return tuple(dict.fromkeys(folder for folder in found if folder.is_dir()))


def _names(text: str) -> tuple[bool, Sequence[str]]:
    """True if each include is a plain name, and the names."""
    names = [found[1] or found[2] or "" for found in _INCLUDE.finditer(text.replace("\\\n", ""))]
    return all(names), [name for name in names if name]


def _scan(path: Path) -> tuple[str, tuple[bool, Sequence[str]]]:
    """sha256 of a header, and `_names` of it. Raises LabError if it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LabError(f"the header {path} cannot be read: {error.strerror}", "make it readable") from error
    return hashlib.sha256(content).hexdigest(), _names(content.decode(errors="replace"))


_scanned = functools.cache(_scan)
