"""The real cupy._environment: CuPy's binding of NVRTC, which the stand-in uses, finds its library with it."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_here = Path(__file__).resolve()
_real = next(
    path
    for path in (Path(folder) / "cupy" / "_environment.py" for folder in sys.path)
    if path.exists() and path.resolve() != _here
)
_spec = spec_from_file_location(__name__, _real)
_module = module_from_spec(_spec)
_spec.loader.exec_module(_module)
sys.modules[__name__] = _module
