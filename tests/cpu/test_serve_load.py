"""The server under load with the real engine: the same answers as from generate, whatever other clients do."""

import json
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("openai", reason="needs the extra `dev`")

import httpx
import openai
from checkpoints import save
from serving import serving

from common.config.cli import composed
from common.config.resolve import resolve
from experiments.generate import main
from experiments.serving.decoder import Decoder

pytestmark = pytest.mark.cpu
TOKENS, PROMPTS, REQUESTS = 12, 2, 200
MALFORMED = ({"prompt": []}, {"prompt": [64]}, {"max_tokens": 0}, {"prompt": [1] * 200}, {"prompt": "text"}, {"n": 2})


@pytest.fixture
def overrides(tmp_path, cpu_cache, seed):
    """A model so small that a token takes milliseconds, on two blocks of one warp."""
    save(tmp_path / "model")
    where = [f"weights={tmp_path}/model", f"cache={cpu_cache}", f"results={tmp_path}/records.jsonl"]
    return [*where, "device=ptx", "variant=baseline", "threads=32", "blocks=2", f"seed={seed}"]


def generated(overrides: list[str], prompt: list[int], capsys: pytest.CaptureFixture[str]) -> list[int]:
    """Ids by `python -m experiments.generate`."""
    ids = f"prompt_ids={prompt}".replace(" ", "")
    assert main([*overrides, ids, f"max_tokens={TOKENS}", "stop=false", "json=true"]) == 0
    return json.loads(capsys.readouterr().out)["ids"]


class Client:
    """One request of each kind. Proper ones are repeated until the queue has a place."""

    def __init__(self, server, wanted: dict[tuple[int, ...], list[int]], random_: random.Random) -> None:
        self.server, self.wanted, self.random = server, wanted, random_

    def ask(self, kind: str) -> str:
        prompt = self.random.choice(list(self.wanted))
        count = self.random.randint(1, TOKENS)
        while True:
            try:
                return getattr(self, kind)(list(prompt), count, self.wanted[prompt][:count])
            except openai.RateLimitError:
                time.sleep(0.02)

    def whole(self, prompt, count, want):
        assert self.server.ids(prompt, count, model=self.model()) == want
        return "answered"

    def streamed(self, prompt, count, want):
        extra, found = {"return_token_ids": True}, []
        with self.server.openai.completions.create(
            model=self.model(), prompt=prompt, max_tokens=count, stream=True, extra_body=extra
        ) as stream:
            for chunk in stream:
                found += chunk.choices[0].token_ids
        assert found == want
        return "answered"

    def malformed(self, prompt, count, want):
        body = {"model": "model", "prompt": prompt, "max_tokens": count} | self.random.choice(MALFORMED)
        answer = self.server.http.post("/v1/completions", json=body)
        assert answer.status_code in (400, 422, 429)
        return "refused"

    def impatient(self, prompt, count, want):
        body = {"model": "model", "prompt": prompt, "max_tokens": 100}
        patience = httpx.Timeout(20, read=0.005)
        with suppress(httpx.TimeoutException):
            assert self.server.http.post("/v1/completions", json=body, timeout=patience).status_code == 429
        return "left"

    def disconnecting(self, prompt, count, want):
        """Sends a request or half of one, reads a part of the answer or nothing, and is gone."""
        body = json.dumps({"model": "model", "prompt": prompt, "max_tokens": 100, "stream": True})
        host, port = self.server.address.removeprefix("http://").split(":")
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        text = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        with socket.create_connection((host, int(port)), timeout=60) as one:
            one.sendall(text[: self.random.choice((40, len(text) - 5, len(text), len(text)))])
            if self.random.random() < 0.5:
                one.settimeout(0.05)
                with suppress(TimeoutError):
                    one.recv(500)
        return "left"

    def model(self) -> str:
        return "model:split_kv" if self.random.random() < 0.1 else "model"


def test_200_requests_of_which_a_third_misbehave(overrides, capsys, seed):
    chance = random.Random(seed)
    prompts = [[chance.randrange(64) for _ in range(chance.randint(1, 4))] for _ in range(PROMPTS)]
    wanted = {tuple(prompt): generated(overrides, prompt, capsys) for prompt in prompts}
    bad = REQUESTS // 9
    kinds = ["malformed"] * bad + ["impatient"] * bad + ["disconnecting"] * bad
    kinds += [chance.choice(("whole", "streamed")) for _ in range(REQUESTS - len(kinds))]
    chance.shuffle(kinds)
    opened: list[Decoder] = []
    with serving(lambda: opened.append(Decoder(resolve(composed("config", overrides)))) or opened[0]) as server:
        ask = Client(server, wanted, chance).ask
        assert (ask("whole"), ask("streamed")) == ("answered", "answered")
        before = server.open()
        clients = [Client(server, wanted, random.Random(seed + number)) for number in range(REQUESTS)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(Client.ask, clients, kinds))
        assert found.count("answered") == REQUESTS - 3 * bad
        server.waits(0)
        assert ask("whole") == "answered"
        server.closed(before)
        server.ids([1], 1, model="model:split_kv", extra_body={"knobs": {"chunk": 32}, "return_token_ids": True})
        stack = opened[0].engine.stack.stack
        assert (stack.name, stack.knobs) == ("split_kv", {"split_kv": {"chunk": 32}})
