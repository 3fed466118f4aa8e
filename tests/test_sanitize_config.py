"""`sanitize=` on the command line: its meaning, and where it is refused."""

import pytest

from common.config.cli import run_task
from common.config.device_choice import DeviceChoice
from common.config.resolve import resolve


@pytest.fixture
def configure(capsys):
    """The configuration of a command line, or the line on stderr that refuses it."""

    def run_(*argv: str):
        found = []
        run_task(lambda cfg: found.append(resolve(cfg)) or 0, "config", argv)
        return found[0] if found else capsys.readouterr().err.strip()

    return run_


def test_the_command_line_takes_it(configure):
    config = configure("device=host", "sanitize=thread")
    assert (config.sanitize, config.validation.trials) == ("thread", "none")
    assert [configure("device=host", f"sanitize={name}").sanitize for name in ("address", "undefined")] == [
        "address",
        "undefined",
    ]
    config = configure("device=host")
    assert (config.sanitize, config.validation.trials) == (None, "plain")


def test_the_command_line_refuses_what_cannot_be(configure, monkeypatch):
    assert configure("device=host", "sanitize=threads") == (
        "error: unknown sanitize 'threads'; did you mean 'thread'? known: address, thread, undefined"
    )
    monkeypatch.setattr("common.config.resolve.choose_device", lambda name: DeviceChoice("cuda", "a test"))
    assert configure("device=cuda", "sanitize=thread") == (
        "error: sanitize=thread is for the host device, not for cuda; add device=host, or leave out sanitize="
    )
