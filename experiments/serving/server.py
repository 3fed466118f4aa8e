"""The running server: HTTP in a thread beside the engine's, until a signal or `should_exit` ends it."""

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing

import uvicorn

from common.errors import LabError
from common.stacks.stack import Stack
from experiments.serving.app import make_app
from experiments.serving.decoder import Decoder
from experiments.serving.line import Line
from experiments.serving.models import ServedModels
from experiments.serving.settings import Settings

CLOSING_S = 5  # for answers that are on their way when the server ends


class Server(uvicorn.Server):
    """Uvicorn's server. When it begins to end, the line gives up its jobs."""

    def __init__(self, config: uvicorn.Config, line: Line) -> None:
        super().__init__(config)
        self.line = line

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.line.end()
        await super().shutdown(sockets)

    def run_beside(self, listener: socket.socket) -> None:
        """Serve until the end, in a thread of its own."""
        try:
            asyncio.run(self.serve([listener]))
        finally:
            self.line.close()


def run(
    settings: Settings, open_decoder: Callable[[], Decoder], started: Stack, on_ready: Callable[[Server, str], None]
) -> None:
    """Serve until the end; this thread opens the engine and answers. on_ready: gets the server and its address.

    Raises LabError when the address cannot be taken, when the engine does not open, and when the device is lost.
    """
    with _listen(settings) as listener:
        decoder = open_decoder()
        with closing(decoder.engine):
            line = Line(settings)
            app = make_app(line, decoder, ServedModels(decoder.about["model"], started), settings)
            config = uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSING_S,
            )
            server = Server(config, line)

            def stop(number: int, frame: object) -> None:
                if server.should_exit:  # the second time: also in the middle of a compilation
                    server.force_exit = True
                    raise KeyboardInterrupt
                server.should_exit = True

            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, stop)
            serving = threading.Thread(target=server.run_beside, args=[listener])
            serving.start()
            host = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
            on_ready(server, f"http://{host}:{listener.getsockname()[1]}")
            line.work()
            server.should_exit = True
            serving.join()
    if line.lost:
        raise line.lost


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
