"""Configuration from the command line: accepted values, their meaning, and the error for every mistake."""

import pytest
from temporary_root import make_root

from common.config import cli
from common.config.cli import run_task
from common.config.resolve import resolve
from common.config.run_config import RunConfig


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def configure(root, capsys):
    """Compose and resolve as the command line does; returns (exit code, configurations, lines on stderr)."""

    def run(*argv: str) -> tuple[int, list[RunConfig], list[str]]:
        found: list[RunConfig] = []

        def task(cfg):
            found.append(resolve(cfg, root))
            return 0

        default = [] if any(argument.startswith("device=") for argument in argv) else ["device=ptx"]
        code = run_task(task, "config", [*argv, *default], root)
        return code, found, capsys.readouterr().err.splitlines()

    return run


@pytest.fixture
def one(configure):
    def run(*argv: str) -> RunConfig:
        code, found, errors = configure(*argv)
        assert (code, errors) == (0, [])
        assert len(found) == 1
        return found[0]

    return run


@pytest.fixture
def refused(configure):
    def run(*argv: str) -> str:
        code, found, errors = configure(*argv)
        assert code == 2
        assert not found
        assert len(errors) == 1, errors
        assert errors[0].startswith("error: ")
        assert "; " in errors[0]
        return errors[0]

    return run


def stacks(config):
    return {stack.name: (stack.variants, stack.parent) for stack in config.stacks}


def test_a_plain_run_is_every_variant_on_its_parent(one):
    config = one()
    assert stacks(config) == {
        "baseline": ((), ()),
        "lazy": (("lazy",), ()),
        "prefetch": (("warp_split", "prefetch"), ("warp_split",)),
        "warp_split": (("warp_split",), ()),
    }
    assert config.model.name == "tiny"
    assert (config.threads, config.blocks, config.weights) == (256, None, "synthetic")


def test_a_default_is_written_once(one):
    expected = {"warp_split": {"producers": 2, "consumers": 6}}
    assert one("variant=warp_split").stacks[0].knobs == expected
    assert one("stack=[warp_split]").stacks[0].knobs == expected


def test_a_knob_reaches_every_stack_that_takes_it(one):
    for stack in one("variant=all", "ratio=1:7").stacks:
        if "warp_split" in stack.variants:
            assert stack.knobs["warp_split"] == {"producers": 1, "consumers": 7}
    config = one("stack=[prefetch,warp_split]", "ratio=0:8", "how=ldg", "matrices=[gate]", "bytes=64")
    assert config.stacks[0].variants == ("prefetch", "warp_split")
    assert config.stacks[0].parent == ("prefetch",)
    assert config.stacks[0].knobs == {
        "prefetch": {"how": "ldg", "matrices_o": 0, "matrices_gate": 1, "matrices_down": 0, "bytes": 64},
        "warp_split": {"producers": 0, "consumers": 8},
    }


def test_knobs_of_a_named_stack_can_be_overridden(one):
    config = one("variant=both")
    assert stacks(config) == {"both": (("warp_split", "prefetch"), ())}
    assert config.stacks[0].knobs["prefetch"]["how"] == "ldg"
    assert config.stacks[0].knobs["prefetch"]["bytes"] == 128
    assert one("variant=both", "how=prefetch").stacks[0].knobs["prefetch"]["how"] == "prefetch"


def test_a_default_ratio_fits_the_warps_of_a_block(one):
    assert one("variant=warp_split", "threads=128").stacks[0].knobs["warp_split"] == {"producers": 1, "consumers": 3}


def test_baseline_is_the_empty_stack(one):
    for spelling in ("variant=baseline", "stack=[]", "stack=[baseline]"):
        assert stacks(one(spelling)) == {"baseline": ((), ())}
    assert one("stack=[baseline,lazy]").stacks[0].variants == ("lazy",)


def test_seeds_are_fresh_unless_given(one):
    assert one("seed=7").seed == 7
    assert len({one().seed for _ in range(4)}) == 4


def test_models_and_their_overrides(one):
    model = one("model=odd").model
    assert (model.hidden, model.heads, model.kv_heads, model.head_dim, model.tied) == (72, 6, 2, 24, False)
    assert (model.rope_theta, model.rms_eps) == (5e5, 1e-6)
    assert one("model.positions=256").model.positions == 256
    assert one("model=odd", "model.positions=96").model.positions == 96
    # Qwen/Qwen3-0.6B and -1.7B as published: parameters without the norms.
    assert one("model=qwen3_0_6b").model.matrix_weights == 595_984_384
    traits = one("model=odd", "model.qk_norm=false", "model.rope=llama3:8:1:4:8192").model
    assert (traits.qk_norm, traits.qkv_bias, traits.rope) == (False, False, "llama3:8:1:4:8192")
    assert one("model=qwen3_1_7b").model.matrix_weights == 28 * (4096 + 2048 + 3 * 6144) * 2048 + 151936 * 2048


def test_a_checkpoint_sets_the_model_shape(one):
    config = one("weights=folder", "model.positions=99")
    assert (config.model, config.positions, config.weights) == (None, 99, "folder")
    assert one("weights=folder", "model=tiny").model.name == "tiny"


def test_timing_positions(one):
    config = one("model=tiny", "timing=full")
    assert config.timing.at(config.model) == (1, 10, 50)
    config = one("model=tiny", "timing.positions=[63,0]")
    assert config.timing.at(config.model) == (63, 0)
    assert one("timing=none").timing is None


def test_an_experiment_overrides_parts_of_the_configuration(one):
    config = one("experiment=validate")
    assert (config.timing, config.validation.seeds) == (None, 20)
    assert one("experiment=validate", "validate.seeds=2").validation.seeds == 2


def test_multirun(configure, root):
    code, found, errors = configure("-m", "variant=warp_split", "ratio=1:7,2:6", "threads=256")
    assert (code, errors) == (0, [])
    assert [config.stacks[0].knobs["warp_split"]["producers"] for config in found] == [1, 2]
    code, found, errors = configure("threads=100,256", "-m", "seed=1")  # the flag at any position
    assert (code, len(found)) == (2, 1)  # the wrong job does not stop the other
    assert len(errors) == 1


def test_a_flag_may_be_between_keys(configure):
    assert configure("variant=baseline", "--cfg", "job", "threads=128") == (0, [], [])


def test_paths(one, root, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    config = one()
    assert config.results == root / "experiments" / "runs" / "records.jsonl"
    assert str(config.cache) == "/elsewhere/megakernel-lab"


def test_every_path_is_absolute_from_the_callers_folder(one, tmp_path, monkeypatch):
    """Workers start in another folder."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "synthetic").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/user")
    config = one("results=r.jsonl", "cache=../c", "weights=folder")
    assert config.results == tmp_path / "r.jsonl"
    assert config.cache == tmp_path / "../c"
    assert config.weights == f"{tmp_path}/folder"
    assert one("weights=./synthetic").weights == f"{tmp_path}/synthetic"
    assert one("weights=synthetic").weights == "synthetic"
    assert one("weights=Qwen/Qwen3-0.6B").weights == "Qwen/Qwen3-0.6B"  # no such folder: a hub id
    assert str(one("results='~/r.jsonl'").results) == "/home/user/r.jsonl"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["variant=wrap_split"], "did you mean 'warp_split'? known: all, baseline, both, catalog, lazy"),
        (["stack=lazy"], "stack=lazy is not a list"),
        (["variant=warp_split", "variant.knobs.ratio.default=1:7"], "give a knob by its name"),
        (["rati=2:6"], "did you mean 'ratio'?"),
        (["experiment=null"], "unknown experiment 'null'; known: ablation, "),
        (["variant=vec128+split_kv"], "give stack=[vec128,split_kv]"),
        (["model=tinny"], "unknown model 'tinny'; did you mean 'tiny'?"),
        (["model=tiny", "model.hiden=8"], "did you mean 'model.hidden'?"),
        (["model=tiny", "model.hidden=12"], "not a multiple of 8"),
        (["model=tiny", "model.kv_heads=3"], "do not share"),
        (["model=tiny", "model.layers=many"], "model.layers=many"),
        (["model=tiny", "model.rope_theta=1e400"], "model.rope_theta is inf"),
        (["model=tiny", "model.rope_theta=1e-300"], "give a model.rope_theta from 1 on"),
        (["model=tiny", "model.rms_eps=1e-300"], "a normal number of fp32"),
        (["model.qk_norm=false"], "unknown key 'model.qk_norm'"),
        (["model.positions=0"], "model.positions=0"),
        (["model=tiny", "model.positions=1"], "give model.positions=2 or more"),
        ([f"timeout_s=1{'0' * 400}"], "0 is not a positive number"),
        (["+foo=1"], "unknown key 'foo'"),
        (["+options.x=1"], "unknown key 'options.x'; known: none"),
        (["experiment=counts", "++options.x=1"], "known: options.variants"),
        (["+options={x: 1}"], "error: options= is for the yaml of an experiment; give experiment=NAME"),
        (["task=counts"], "task= is for the yaml of an experiment; "),
        (["hydra=x"], "unknown key 'hydra'"),
        (["timing.stpes=1"], "did you mean 'timing.steps'?"),
        (["experiment=energy", "timing=none"], "timing.positions= has no effect with timing=none; leave"),
        (["threads=100"], "not a multiple of 32"),
        (["threads=0"], "32..1024"),
        (["threads=2048"], "32..1024"),
        (["threads=true"], "threads=true is not a whole number"),
        (["blocks=0"], "1..1024"),
        (["seed=-1"], "seed=-1"),
        (["timing.steps=0"], "timing.steps=0"),
        (["timing.max_rounds=1"], "below timing.rounds"),
        (["timing.interval=0"], "timing.interval=0"),
        (["timing.positions=[-1]"], "-1"),
        (["timing.positions=[64]", "model=tiny"], "model.positions=65"),
        (["experiment=ablation", "options.position=5000"], "options.position: 5000 is not in 0..2047, "),
        (["timing.positions=[]"], "empty"),
        (["validate.seeds=0"], "validate.seeds=0"),
        (["json=yes"], "true nor false"),
        (["weights="], "weights="),
        (["results=${nothing}"], "nothing"),
        (["device=gpu"], "known: auto, cuda, ptx"),
        (["threads=[1"], "cannot read 'threads=[1'"),
        (["baseline"], "cannot read 'baseline'; write key=value"),
        ([".=1"], "cannot read '.=1'; write key=value"),
        (["variant=lazy,baseline"], "run each value with -m"),
        (["-m", "variant=lazy,lazi"], "unknown variant 'lazi'; did you mean 'lazy'?"),
        (["model="], "unknown model ''; known: "),
        (["timing=a/b"], "unknown timing 'a/b'; known: "),
        (["model=Qwen/Qwen3-0.6B"], "no name of a shape; give weights=Qwen/Qwen3-0.6B"),
        (["++variant=lazy", "threads=33"], "threads=33"),
        (["--resolve"], "--resolve says how --cfg prints"),
        (["-m", "--cfg", "job"], "--multirun and --cfg exclude each other"),
        (["variant=[lazy,baseline]"], "write a stack as stack=[a,b]"),
        (["model=[tiny,odd]"], "takes one name, not the list [tiny,odd]"),
        (["seed=1,2"], "'seed=1,2'; write a stack as stack=[a,b], a list as [1,2]"),
        (["--bogus"], "--bogus"),
        (["--config-name", "generate"], "unrecognized arguments: --config-name; "),
        (["--cfg", "job", "-p", "x"], "unrecognized arguments: --package; "),
        (["~model"], "~model would remove a key"),
        (["hydra.run.dir=x"], "hydra.run.dir=x has no effect without -m"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(refused, argv, message):
    assert message in refused(*argv)


def test_debug_shows_where_an_error_comes_from(configure):
    code, _, errors = configure("threads=100", "debug=true")
    assert code == 2
    assert errors[0].startswith("Traceback")
    assert errors[-1].startswith("error: threads=100")


def test_an_internal_error_keeps_its_traceback(root):
    def task(cfg):
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        run_task(task, "config", [], root)


def test_an_interrupt_has_its_own_exit_code(root, capsys):
    def task(cfg):
        raise KeyboardInterrupt

    assert run_task(task, "config", [], root) == cli.INTERRUPTED
    assert capsys.readouterr().err.startswith("error: interrupted")
