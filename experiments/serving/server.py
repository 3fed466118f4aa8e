"""The running server: socket, queue and application, until a signal or `should_exit` ends it."""

import signal
import socket
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
from sse_starlette.sse import AppStatus

from common.errors import LabError
from common.stacks.stack import Stack
from experiments.serving.app import make_app
from experiments.serving.jobs import Event
from experiments.serving.metrics import Metrics
from experiments.serving.models import ServedModels
from experiments.serving.protocol import Protocol
from experiments.serving.queue import WORKER, Queue
from experiments.serving.settings import Settings

CLOSING_S = 5  # for answers that are on their way when the server ends

AppStatus.disable_automatic_graceful_drain()  # a stream ends with an error event, and is not cut off


class Server(uvicorn.Server):
    """Uvicorn's server. When it begins to end, the queue gives up its jobs."""

    def __init__(self, config: uvicorn.Config, queue: Queue) -> None:
        super().__init__(config)
        self._queue = queue

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._queue.end()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let `serve` return. Uvicorn's own also keeps the signal, and raises it again."""
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True


async def run(
    settings: Settings,
    first: Event,
    started: Stack,
    on_ready: Callable[[Server, str], None],
    worker: Sequence[str] = WORKER,
) -> None:
    """Serve until the end. first: the worker's first request. on_ready: called with the server and its address.

    Raises LabError when the address cannot be taken or the worker does not start.
    """
    metrics = Metrics()
    with _listen(settings) as listener:
        async with Queue(first, settings, metrics, worker) as queue:
            served = ServedModels(queue.about["model"], started)
            config = uvicorn.Config(
                make_app(queue, served, settings, metrics),
                http=Protocol,
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSING_S,
            )
            server = Server(config, queue)
            host = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
            on_ready(server, f"http://{host}:{listener.getsockname()[1]}")
            await server.serve([listener])


def announce(settings: Settings, served: str, server: Server, address: str) -> None:
    """Print where the server listens, and a warning where others can listen in."""
    print(f"serving {served} at {address} (page) and {address}/v1 (API); Ctrl-C ends", file=sys.stderr)
    if not settings.loopback:
        print(
            f"warning: bind={settings.bind} lets other machines in, and requests, answers and the API key pass "
            "unencrypted; put a proxy with TLS in front",
            file=sys.stderr,
        )


def _listen(settings: Settings) -> socket.socket:
    """A listening socket. Raises LabError."""
    try:
        family, *_, address = socket.getaddrinfo(settings.bind, settings.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        cause = f"bind={settings.bind} port={settings.port} cannot be taken: {reason}"
        raise LabError(cause, "give another port=, or port=0 for a free one") from None
