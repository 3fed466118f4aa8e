"""reproduce=ID of a record with sources that are gone; tests/cpu/test_resume.py builds one again."""

import pytest
from whole_rows import RUN

from common.record.store import Store
from experiments.__main__ import main


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"stack": ["gone"], "variant": "gone"}, "unknown variant 'gone'"),
        ({"stack": ["vec128"], "knobs": {}}, "the knobs of vec128 were None, and are others by now"),
        ({"stack": ["vec128"], "knobs": {"vec128": {"l1": "default", "gone": 3}}}, "the knobs of vec128 were"),
        ({"stack": ["vec128"], "knobs": {"vec128": {"l1": "gone"}}}, "l1=gone"),
        ({"stack": ["warp_split"], "knobs": {"warp_split": {"producers": 2, "consumers": 9}}}, "ratio=2:9"),
        ({"weights": {"sha": "0", "source": "a folder"}}, "the record's weights are a folder"),
        ({"model": RUN["model"] | {"heads": 3}}, "has no record with the id"),
    ],
)
def test_a_record_that_cannot_be_built_again(tmp_path, capsys, more, said):
    name = Store(tmp_path / "r.jsonl").append(RUN | more)
    assert main(["device=ptx", f"reproduce={name}", f"results={tmp_path / 'r.jsonl'}"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert captured.out == ""
