"""Remedies that help: the key that the user gave, the list that works, what is missing; a table of cases."""

import errno
import os

import pytest
from made_records import shown_run

from common.config.section import Section
from common.errors import LabError
from common.errors.machine import of_system
from common.record.store import Store
from experiments.__main__ import main
from experiments.serving.settings import read_settings
from experiments.show import __main__ as show

SERVER = {"bind": "127.0.0.1", "port": 0, "queue": 1, "deadline_s": 1, "body_kb": 1}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["stack=[megaqwen,vec128]"],
            "megaqwen is a stack of 3 variants, and a stack is a list of variants; "
            "name them: stack=[redundant_rmsnorm,l2_prefetch,vec128]",
        ),
        (
            ["experiment=positions", "options.positions=[-1]"],
            "options.positions=-1 is not a whole number of at least 0",
        ),
        (["experiment=positions", "timing.ladder=[-1]"], "timing.ladder=-1 is not a whole number of at least 0"),
    ],
)
def test_an_error_names_what_was_given(argv, said, capsys):
    assert main([*argv, "device=ptx"]) == 2
    assert said in capsys.readouterr().err


def test_a_record_of_a_removed_variant_is_made_again_with_its_seed(tmp_path, capsys):
    row = shown_run(variant="gone", seed=77) | {"stack": ["gone"], "provenance": {"command": "python -m experiments"}}
    store = Store(tmp_path / "r.jsonl")
    store.append({name: row[name] for name in row.keys() - {"id", "schema", "time"}})
    assert show.main(["last", f"results={store.path}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" seed=77")


@pytest.mark.parametrize(("key", "wanted"), [("", None), (None, None), ("secret", "secret")])
def test_an_empty_key_of_the_api_is_none(key, wanted):
    assert read_settings(Section(SERVER | {"api_key": key})).api_key == wanted
    if not wanted:
        with pytest.raises(LabError, match="lets other machines in, and there is no API key"):
            read_settings(Section(SERVER | {"api_key": key, "bind": "0.0.0.0"}))


def test_only_a_full_disk_is_to_be_freed():
    for code, first in ((errno.ENOSPC, "free some space there, or "), (errno.EROFS, "")):
        error = of_system(OSError(code, os.strerror(code)), "the cache cannot be used")
        assert error.remedy.startswith(f"{first}choose another place with cache=DIR")
