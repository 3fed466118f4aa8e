"""Start of a server, what it refuses and warns of then, and the stages that it times."""

import socket

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("openai", reason="needs the extra `dev`")

import pandas
from serving import LIMITS, serving

from common.config.cli import composed
from common.config.resolve import split
from common.errors import LabError
from common.stacks.catalog import read_catalog
from experiments.run.timeline import Timeline
from experiments.serve import main
from experiments.serving.decoder import stage_times
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


def test_stages_sum_layers_and_leave_out_blocks_without_a_part():
    rows = [("embed", 0, 0, 0, 2, 4), ("embed", 0, 1, 1, 2, 4), ("qkv", 0, 1, 5, 9, 10), ("qkv", 1, 1, 20, 21, 25)]
    spans = pandas.DataFrame(rows, columns=["stage", "layer", "block", "begin", "end", "passed"])
    found = stage_times(Timeline("a title", "ns", spans))
    assert found["stages"] == [
        {"stage": "embed", "work": [2, 1], "wait": [2, 2]},
        {"stage": "qkv", "work": [None, 5], "wait": [None, 5]},
    ]
    assert (found["blocks"], found["unit"]) == (2, "ns")
    ordinal = stage_times(Timeline("a title", "ordinal", spans))
    assert ordinal["stages"][1] == {"stage": "qkv", "work": [None, 0], "wait": [None, 0]}, "no times"


def test_the_missing_extra_is_named(capsys, monkeypatch):
    monkeypatch.setattr("experiments.serve.find_spec", lambda name: None if name == "uvicorn" else name)
    assert main([]) == 2
    assert capsys.readouterr().err == "error: serving needs uvicorn; pip install -e '.[serve]'\n"


def test_a_server_open_to_others_warns(capsys):
    announce(Settings(**LIMITS), "baseline", None, "http://127.0.0.1:1")
    assert "warning" not in capsys.readouterr().err
    announce(Settings(**LIMITS | {"bind": "0.0.0.0", "api_key": "k"}), "baseline", None, "http://0.0.0.0:1")
    assert "warning: bind=0.0.0.0 lets other machines in" in capsys.readouterr().err
