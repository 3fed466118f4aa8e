"""Any yaml of a launch: a result, or one line with cause and remedy. LAB_SAMPLE=all takes all 150."""

import random

import numpy as np
from launch_texts import launch_texts
from sampled import SAMPLE, sampled

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) { .reg .u32 %r<3>; .reg .u64 %rd<4>;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], 0;
ret; }
"""


def test_no_yaml_gives_a_traceback(command, tmp_path, monkeypatch):
    (tmp_path / "k.ptx").write_text(KERNEL)
    np.save("y.npy", np.zeros((4, 8), np.float32))
    for text in sampled(launch_texts(random.Random(SAMPLE), 150), 15):
        (tmp_path / "k.yaml").write_text(text)
        try:
            code, out, err = command("k.ptx", "k.yaml")
        except BaseException as error:
            raise AssertionError(text) from error
        assert code in (0, 1, 2), text
        assert "Traceback" not in out + err, text
        assert (code == 2) == err.startswith("error: "), (text, err)
        if code == 2:
            cause, _, remedy = err.partition("; ")
            assert err.count("\n") == 1, (text, err)
            assert cause, (text, err)
            assert remedy.strip(), (text, err)
        else:
            assert out.strip(), text
            assert not err, (text, err)
