"""Build backend that knows editable installations only.

The lab needs conf/, variants/, CUDA and C++ sources beside its packages, and writes its records there. A wheel would
have none of them, and would put a package called `common` among those of everybody else.
"""

from typing import Any, NoReturn

from setuptools.build_meta import (  # noqa: F401  the hooks of an editable installation
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
)

LINE = (
    "error: the lab runs from its checkout, beside conf/ and variants/, and no wheel or sdist is built of it; "
    "in a clone of the repository: make run, or pip install -e '.[cuda13]'"
)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise SystemExit(LINE)


# Both: pip asks for requirements and metadata first, and downloads every dependency before it builds.
get_requires_for_build_wheel = prepare_metadata_for_build_wheel = build_wheel = _refuse
get_requires_for_build_sdist = build_sdist = _refuse
