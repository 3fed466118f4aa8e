"""tests/port is on the path, too: its faults of port.cuh are executed here."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "port"))
