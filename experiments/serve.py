"""Serve a stack over HTTP, as OpenAI's API and as a page: `python -m experiments.serve --help`."""

import sys
from functools import partial
from importlib.util import find_spec

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import resolve_one, split
from common.errors import LabError
from experiments.serving.settings import SERVER_KEYS, read_settings

NEEDED = ("fastapi", "uvicorn")


def serve(cfg: DictConfig) -> int:
    """Serve the stack of `cfg` until a signal ends it."""
    own, rest = split(cfg, SERVER_KEYS)
    settings = read_settings(own)
    config = resolve_one(rest, "a server")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise LabError(f"serving needs {', '.join(missing)}", "pip install -e '.[serve]'")
    from experiments.serving.decoder import Decoder
    from experiments.serving.server import announce, run

    (stack,) = config.stacks
    print(config.device, file=sys.stderr)
    decoder = partial(Decoder, config)
    run(settings, decoder, stack, partial(announce, settings, stack.name))
    return 0


main = partial(run_task, serve, "serve")

if __name__ == "__main__":
    raise SystemExit(main())
