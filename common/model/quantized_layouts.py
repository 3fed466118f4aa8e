"""The layouts of quantized matrices that are read, each by the `quantization_config` that asks for it.

A key that is in no table here may change a weight, so it is refused by name; tests/test_known_keys.py compares the
tables with the configurations of transformers and compressed-tensors.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import gcd
from reprlib import repr as short
from typing import Any

from common.errors import LabError
from common.lazy import torch
from common.model.checkpoint import Checkpoint
from common.model.format import WORD, Format
from common.model.hf_config import check_keys, names
from common.model.quantization import BYTES, REALS, USE, WORDS, Part, Quantization
from common.model.shapes import Model

BLOCK = 128  # rows and columns that share a scale in the fp8 layout of Qwen3
LOADING = names("quant_method method dequantize run_compressed use_optimized_inference")
# Lists of matrices: those that are quantized are so in their tensors.
CHOSEN = names("modules_to_not_convert ignored_layers ignore modules_in_block_to_quantize")
# How GPTQ and AWQ found the numbers, and which kernels their authors' libraries take.
CALIBRATION = names(
    """act_group_aware backend batch_size block_name_to_quantize cache_block_outputs damp_auto_increment damp_percent
    dataset disable_exllama do_fuse exllama_config fuse_max_seq_len max_input_length meta model_file_base_name
    model_name_or_path model_seqlen module_name_preceding_first_block modules_to_fuse mse pad_token_id static_groups
    tokenizer true_sequential use_cuda_fp16 use_exllama"""
)
SIZES = names("bits group_size checkpoint_format format version")  # keys that methods of `QuantizationConfig` read
ARGUMENTS = names(  # QuantizationArgs of compressed-tensors; for activations, which stay fp32 here, all are unused
    """num_bits type symmetric group_size strategy block_structure dynamic actorder scale_dtype zp_dtype observer
    observer_kwargs"""
)
STATUS = names("quantization_status global_compression_ratio version")
ACTIVATIONS = ("input_activations", "output_activations")
# Formats of compressed-tensors, their numbers by `type`.
PACKED, IN_BYTES, REAL = Part("weight_packed", WORDS, packed=1), Part("weight", BYTES), Part("weight", REALS)
FORMATS = {
    "pack-quantized": {"int": PACKED},
    "int-quantized": {"int": IN_BYTES},
    "float-quantized": {"float": REAL},
    "naive-quantized": {"int": IN_BYTES, "float": REAL},
}


def read_quantization(checkpoint: Checkpoint, config: Mapping[str, Any], model: Model) -> Quantization | None:
    """The layout that `quantization_config` of a config.json describes; None for a checkpoint that is not quantized.

    Raises LabError for one that is not supported, with what it asks for, and for a key that is not known.
    """
    found, file = config.get("quantization_config"), checkpoint.config
    if found is None:
        return None
    method = found.get("quant_method") if isinstance(found, Mapping) else None
    if not isinstance(method, str) or method not in METHODS:
        said = f"quant_method is {short(method)}" if isinstance(found, Mapping) else f"it is {short(found)}"
        raise LabError(
            f"{file}: quantization_config: {said}", f"give a checkpoint of {', '.join(METHODS)}, or one in bf16"
        )
    described = QuantizationConfig(f"{file}, {method}", found, checkpoint, model)
    return replace(METHODS[method](described), reading=json.dumps(found, sort_keys=True))


@dataclass(frozen=True)
class QuantizationConfig:
    """A `quantization_config`, and the checkpoint and model that its meaning depends on. place: its name in messages.

    All methods raise LabError for a value that is not supported, with its key.
    """

    place: str
    config: Mapping[str, Any]
    checkpoint: Checkpoint
    model: Model

    def below(self, key: str, config: Any) -> "QuantizationConfig":
        """A part of it, the value of `key`."""
        if not isinstance(config, Mapping):
            raise LabError(f"{self.place}: {key} is {short(config)}", USE)
        return QuantizationConfig(f"{self.place}: {key}", config, self.checkpoint, self.model)

    def check(self, free: Collection[str], **read: tuple[Any, ...]) -> None:
        """Check that all keys are known, and that the value of each of `read` is one of these: the first by default."""
        check_keys(self.place, self.config, free, read)
        for key in CHOSEN & self.config.keys():
            if not isinstance(self.config[key], list | None):
                raise LabError(f"{self.place}: {key} is {short(self.config[key])}", "give a list of names")
        for key, wanted in read.items():
            value = self.config.get(key, wanted[0])
            if value not in wanted:
                named = " or ".join(map(short, wanted))
                raise LabError(f"{self.place}: {key} is {short(value)}, and only {named} is read", USE)

    def version(self, *wanted: str, keys: tuple[str, str]) -> str:
        """The value of `keys`, two names of the same, in lower case: one of those wanted, the first by default."""
        given = {str(self.config[key]).lower() for key in keys if self.config.get(key) is not None} or {wanted[0]}
        if len(given) > 1 or not given <= {*wanted}:
            said = ", ".join(f"{key} {short(self.config.get(key))}" for key in keys)
            raise LabError(f"{self.place}: {said}, and only one of {', '.join(wanted)} is read", USE)
        return given.pop()

    def bits(self, key: str) -> int:
        bits = self.config.get(key)
        if bits not in (4, 8):
            raise LabError(f"{self.place}: {key} is {short(bits)}", f"give a checkpoint of 4 or 8 bits; or {USE}")
        return int(bits)

    def group(self, default: int | None = None) -> int:
        """Columns of a group; 0 for a whole row, which checkpoints spell -1."""
        group = self.config.get("group_size")
        group = default if group is None else group
        if type(group) is not int or (group != -1 and (group < WORD or group % WORD)):
            cause = f"{self.place}: group_size is {short(group)}"
            raise LabError(cause, f"give a checkpoint with a multiple of {WORD}; or {USE}")
        return max(group, 0)

    def quantization(self, kind: str, group: int, numbers: Part, scales: Part, **more: Any) -> Quantization:
        """The layout of such parts, with the scales' dtypes: those that the format of one of them holds."""
        ends = f"_proj.{scales.name}"
        half = any(each.dtype == "F16" and name.endswith(ends) for name, each in self.checkpoint.tensors.items())
        scales = replace(scales, dtypes=("F16",) if half else ("BF16", "F32"))
        # The largest part of a group that divides every row: its last group in a row may be shorter.
        part = gcd(group, self.model.hidden, self.model.query, self.model.intermediate) if group else 0
        form = Format(kind, part, zeros=more.get("zeros") is not None, half=half)
        return Quantization(form, group, "", numbers, scales, **more)


def _fp8(found: QuantizationConfig) -> Quantization:
    """e4m3 with a scale for 128 x 128 weights, which is stored as `weight_scale_inv` and multiplied."""
    found.check(
        LOADING | CHOSEN | {"expert_dtype"},
        method=("fp8",),
        weight_block_size=([BLOCK, BLOCK],),
        fmt=("e4m3",),
        scale_fmt=("float", "ue8m0"),  # powers of two, which are numbers, too
        activation_scheme=("dynamic", "static"),
    )
    return found.quantization("fp8", BLOCK, REAL, Part("weight_scale_inv", ()), block=BLOCK)


def _gptq(found: QuantizationConfig) -> Quantization:
    """Integers packed along the columns; zero points are stored less one, but in the second version."""
    found.check(
        LOADING | CALIBRATION | CHOSEN | SIZES,
        method=("gptq",),
        lm_head=(False,),
        is_marlin_format=(False,),
        pack_dtype=("int32",),
        desc_act=(None, False, True),
        sym=(None, False, True),
    )
    bits, group = found.bits("bits"), found.group()
    version = found.version("gptq", "gptq_v2", keys=("checkpoint_format", "format"))
    less, middle, sym = int(version == "gptq"), 2 ** (bits - 1), found.config.get("sym")

    def check(zero: "torch.Tensor", name: str) -> None:
        # Those of symmetric groups are in the middle, and elsewhere all one off only if the other version stored them.
        off = zero != middle if sym else (zero == middle + 2 * less - 1) & (zero == zero[0, 0]).all()
        if bool(off.any()):
            stores = f"checkpoint_format {version}, which stores them {'less one' if less else 'as they are'}"
            raise LabError(
                f"{name}: a zero point is {int(zero[off][0])}, but {found.place} says sym {sym}, {stores}",
                "correct there what the tool that wrote the file did not do",
            )
        if int(zero.max()) == 2 * middle:
            raise LabError(f"{name}: a zero point is {2 * middle}, beyond {bits} bits: libraries differ on it", USE)

    return found.quantization(
        f"int{bits}",
        group,
        Part("qweight", WORDS, turned=True, packed=1),
        Part("scales", (), turned=True),
        zeros=Part("qzeros", WORDS, turned=True, packed=0),
        less=less,
        besides=("g_idx",),
        check=check,
    )


def _awq(found: QuantizationConfig) -> Quantization:
    """4-bit integers packed along the rows."""
    if found.config.get("backend") == "llm-awq":
        raise LabError(f"{found.place}: backend 'llm-awq', and only the layout of version gemm is read", USE)
    found.check(
        LOADING | CALIBRATION | CHOSEN | SIZES | {"sym"},
        method=("awq",),
        bits=(4,),
        zero_point=(True,),
        desc_act=(False,),
    )
    found.version("gemm", keys=("version", "format"))
    numbers = Part("qweight", WORDS, turned=True, packed=0, mixed=True)
    return found.quantization(
        "int4", found.group(), numbers, Part("scales", (), turned=True), zeros=replace(numbers, name="qzeros")
    )


def _compressed(found: QuantizationConfig) -> Quantization:
    """Integers packed along the columns with half of their range added, int8 as it is, or e4m3."""
    sparsity = found.config.get("sparsity_config")
    dense = isinstance(sparsity, Mapping) and sparsity.get("format") == "dense"
    keys = {"config_groups", "format", "kv_cache_scheme", *(["sparsity_config"] if dense else [])}
    found.check(LOADING | CHOSEN | STATUS | keys, method=("compressed-tensors",))
    groups = found.config.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise LabError(f"{found.place}: config_groups is {short(groups)}, not one group for all matrices", USE)
    group = found.below("config_groups", *groups.values())
    group.check({"targets", "weights", "format", *ACTIVATIONS})
    if group.config.get("targets") != ["Linear"]:
        raise LabError(f"{group.place}: targets is {short(group.config.get('targets'))}, not all matrices", USE)
    for scheme in (*(group.config.get(key) for key in ACTIVATIONS), found.config.get("kv_cache_scheme")):
        if scheme is not None:
            found.below("a scheme of activations", scheme).check(ARGUMENTS)
    layout, given = group.config.get("format"), found.config.get("format")
    if layout is not None and given not in (layout, "mixed-precision"):
        raise LabError(f"{found.place}: format is {short(given)}, and its group's is {short(layout)}", USE)
    return _of_scheme(group.below("weights", group.config.get("weights")), given if layout is None else layout)


def _of_scheme(found: QuantizationConfig, layout: Any) -> Quantization:
    """Layout of the matrices that `found` describes. layout: the name of its format in compressed-tensors."""
    config = found.config
    kind, strategy, symmetric = config.get("type"), config.get("strategy"), config.get("symmetric", True)
    numbers = FORMATS.get(str(layout), {}).get(str(kind))
    if numbers is None or strategy not in ("group", "channel"):
        what = f"format {short(layout)}, type {short(kind)}, strategy {short(strategy)}"
        remedy = "give int or float weights by channel or group, or use a bf16 checkpoint"
        raise LabError(f"{found.place}: {what}", remedy)
    found.check(
        ARGUMENTS,
        dynamic=(False,),
        block_structure=(None,),
        symmetric=(True, False) if numbers is PACKED else (True,),
        actorder=(None, False, "static", "weight"),  # others permute columns
        **({"num_bits": (8,)} if kind == "float" else {}),
    )
    bits, group = found.bits("num_bits"), found.group(-1)
    if (strategy == "group") != (group > 0):
        raise LabError(f"{found.place}: strategy is {strategy}, and group_size {short(config.get('group_size'))}", USE)
    return found.quantization(
        "fp8" if kind == "float" else f"int{bits}",
        group,
        numbers,
        Part("weight_scale", ()),
        zeros=None if symmetric else Part("weight_zero_point", WORDS, packed=0),
        besides=("weight_shape",) if numbers is PACKED else (),
    )


METHODS: Mapping[str, Callable[[QuantizationConfig], Quantization]] = {
    "fp8": _fp8,
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
}
