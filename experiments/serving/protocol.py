"""HTTP/1.1 of uvicorn, with a limit of time where the client must send, and errors in OpenAI's form."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from experiments.serving.errors import ApiError

HEAD_S = 30.0  # for the head of a request, and for the rest of a body that is not wanted any more


class Protocol(H11Protocol):
    """One connection. Bodies that the application reads have a limit of their own, in `limits`."""

    _waiting: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, "this is not HTTP/1.1, or its head is too long", "http"))

    def _watch(self) -> None:
        """Begin to wait for a client that must send, or stop when it need not; more of a part is no new beginning."""
        if self._refused:
            return
        if self.conn.their_state is not h11.IDLE and self.conn.our_state is not h11.DONE:
            self._stop_waiting()
        elif not self._waiting:
            self._waiting = self.loop.call_later(HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(ApiError(408, f"the head did not arrive within {HEAD_S:g} s", "slow"))
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Answer a request that never reaches the application, if an answer can still begin, and end the connection.

        Not at once: a client that still sends would lose the answer with the connection.
        """
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        if self.cycle:  # a request with a broken body: nobody answers it any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        answer = error.response
        headers: Any = [*answer.raw_headers, (b"connection", b"close")]
        head = h11.Response(status_code=answer.status_code, headers=headers)
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.write_eof()
        self._refused = True
        self._stop_waiting()
        self._waiting = self.loop.call_later(HEAD_S, self.transport.close)
