"""Errors between processes: the same type, text and fields arrive."""

import pickle

import pytest

from common.errors import CompileError, Hung, LabError, Race, Refused, Unfinished, unknown


@pytest.mark.parametrize(
    "error",
    [
        LabError("cause", "remedy"),
        Refused("cause", "remedy"),
        Unfinished("cause", "remedy"),
        CompileError("cause", "remedy", "log"),
        Hung("cause", "remedy", "report"),
        Race("cause", "remedy", "report"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_it_was_sent(error):
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (type(error), "cause; remedy", vars(error))


def test_a_name_with_a_comma_is_one_of_a_list():
    assert str(unknown("arm", "x", ["b, c", "a"])) == "unknown arm 'x'; known: a, 'b, c'"
