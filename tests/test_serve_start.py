"""Start of a server, and what it refuses and warns of then."""

import socket

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("openai", reason="needs the extra `dev`")

from serving import LIMITS, serving

from common.config.cli import composed
from common.config.resolve import split
from common.config.section import Section
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.serve import main
from experiments.serving.server import announce
from experiments.serving.settings import SERVER_KEYS, Settings, read_settings


def test_a_server_that_cannot_start_says_why(capsys):
    def refuse():
        raise LabError("no such weights", "give others")

    with pytest.raises(LabError, match="no such weights"), serving(refuse):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LabError, match=f"port={port} cannot be taken"), serving(port=port):
            pass
    assert main(["bind=0.0.0.0", "api_key=null"]) == 2
    assert main(["variant=all"]) == 2
    assert main(["json=true"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0] for line in errors] == [
        "error: bind=0.0.0.0 lets other machines in, and there is no API key",
        f"error: a server runs one stack, not {len(read_catalog().variants)}",
        "error: json= has no effect on a server",
    ]


def test_the_key_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("LAB_API_KEY", "secret")
    own, _ = split(composed("serve", []), SERVER_KEYS)
    assert read_settings(own).api_key == "secret"
    for key in ("schl\u00fcssel", "secret\r"):  # which the server would refuse, or no client can send
        with pytest.raises(LabError, match="the API key cannot be a header's value"):
            read_settings(Section(own.values | {"api_key": key}))


def test_the_missing_extra_is_named(capsys, monkeypatch):
    monkeypatch.setattr("experiments.serve.find_spec", lambda name: None if name == "uvicorn" else name)
    assert main([]) == 2
    assert capsys.readouterr().err == "error: serving needs uvicorn; pip install -e '.[serve]'\n"


def test_a_server_open_to_others_warns(capsys):
    announce(Settings(**LIMITS), "baseline", None, "http://127.0.0.1:1")
    assert "warning" not in capsys.readouterr().err
    announce(Settings(**LIMITS | {"bind": "0.0.0.0", "api_key": "k"}), "baseline", None, "http://0.0.0.0:1")
    assert "warning: bind=0.0.0.0 lets other machines in" in capsys.readouterr().err
