"""The layouts of quantized matrices that are read, each by the `quantization_config` that asks for it.

Numbers, scales and zero points are taken as they are stored; nothing is quantized again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from common.errors import LabError
from common.model.checkpoint import AGAIN, Checkpoint
from common.model.format import Format
from common.model.known_keys import ARGUMENTS, CALIBRATION, LOADING, STATUS, check_keys
from common.model.quantization import NOTHING, USE, Found, Numbers, Parts, Quantization, Shapes
from common.model.shapes import Model

if TYPE_CHECKING:
    import torch

BLOCK = 128  # rows and columns that share a scale in the fp8 layout of Qwen3
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of each nibble of a word
GPTQ_STORED = {"gptq": "less one", "gptq_v2": "as they are"}  # zero points, by checkpoint_format
INPUTS = r"\w+_proj\.(input|output)_(scale|zero_point)"  # for activations, which stay fp32 here
ACTIVATIONS, STRATEGIES = ("input_activations", "output_activations"), ("group", "channel")  # in compressed-tensors
OF_CACHE = r"[qkv]_(scale|zero_point)"  # for a cache in fp8, which is kv_format= here


def read_quantization(checkpoint: Checkpoint, config: Mapping[str, Any], model: Model) -> Quantization | None:
    """The layout that `quantization_config` of a config.json describes; None for a checkpoint that is not quantized.

    Raises LabError for one that is not supported, with what it asks for, and for a key that is not known.
    """
    found, file = config.get("quantization_config"), checkpoint.config
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise LabError(f"{file}: quantization_config is {short(found)}", "give the config.json of the checkpoint")
    method = found.get("quant_method")
    readers = {"fp8": _fp8, "gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed}
    if not isinstance(method, str) or method not in readers:
        raise LabError(
            f"{file}: quant_method is {short(method)}", f"give a checkpoint of {', '.join(readers)}, or one in bf16"
        )
    described = Found(f"{file}, {method}", found, checkpoint, model)
    described.only("method", method, default=method)
    return readers[method](described)


def _fp8(found: Found) -> Quantization:
    """e4m3 with a scale for 128 x 128 weights, which is stored as `weight_scale_inv` and multiplied."""
    kept = ("modules_to_not_convert", "ignored_layers")
    of_inputs, of_others = ("activation_scheme",), ("expert_dtype",)
    check_keys(
        found.place, found.config, LOADING, kept, of_inputs, of_others, ("weight_block_size", "fmt", "scale_fmt")
    )
    found.only("weight_block_size", [BLOCK, BLOCK])
    found.only("fmt", "e4m3", default="e4m3")
    found.only("scale_fmt", "float", "ue8m0", default="float")  # powers of two, which are numbers, too
    found.only("activation_scheme", "dynamic", "static", default="dynamic")

    def shapes(rows: int, columns: int) -> Shapes:
        return {"weight": (rows, columns), "weight_scale_inv": (-(-rows // BLOCK), -(-columns // BLOCK))}

    def numbers(parts: Parts, name: str) -> Numbers:
        import torch

        weight, blocks = parts["weight"].view(torch.uint8), parts["weight_scale_inv"]
        scale = blocks.repeat_interleave(BLOCK, 0)[: len(weight)]
        return weight, scale, torch.zeros(scale.shape, dtype=torch.int32)

    scales = found.scales("weight_scale_inv")
    return Quantization(
        format=Format("fp8", found.divided(BLOCK), half=scales == ("F16",)),
        group=BLOCK,
        shapes=shapes,
        dtypes={"weight": ("F8_E4M3",), "weight_scale_inv": scales},
        numbers=numbers,
        keeps=found.not_converted(*kept),
        unused=INPUTS,
        reading=found.text,
    )


def _gptq(found: Found) -> Quantization:
    """Integers packed along the columns; zero points are stored less one, but in the second version."""
    place, config = found.place, found.config
    of_weights = ("bits", "group_size", "desc_act", "sym", "format", "checkpoint_format", "lm_head", "pack_dtype")
    check_keys(place, config, LOADING, CALIBRATION, of_weights, ("modules_in_block_to_quantize", "is_marlin_format"))
    bits, group = found.bits("bits"), found.group()
    for key, usual in (("lm_head", False), ("is_marlin_format", False), ("pack_dtype", "int32")):
        found.only(key, usual, default=usual)
    for key in ("desc_act", "sym"):
        found.only(key, False, True, None)
    version = found.spelled("checkpoint_format", "format", "gptq")
    if version not in GPTQ_STORED:
        raise LabError(f"{place}: checkpoint_format is {short(version)}, and {' and '.join(GPTQ_STORED)} are read", USE)
    less, each, middle = int(version == "gptq"), 32 // bits, 2 ** (bits - 1)

    def shapes(rows: int, columns: int) -> Shapes:
        groups = -(-columns // (group or columns))
        return {
            "qweight": (columns // each, rows),
            "qzeros": (groups, rows // each),
            "scales": (groups, rows),
            "g_idx": (columns,),
        }

    def numbers(parts: Parts, name: str) -> Numbers:
        import torch

        columns = len(parts["g_idx"])
        if not torch.equal(parts["g_idx"].long(), torch.arange(columns) // (group or columns)):
            raise LabError(f"{name}: g_idx is not of groups of {group or columns} columns in order; desc_act does", USE)
        zero = _unpacked(parts["qzeros"], bits).T.int() + less
        # Those of symmetric groups are in the middle, and elsewhere all one off only if the other version stored them.
        off = zero != middle if config.get("sym") else (zero == middle + 2 * less - 1) & (zero == zero[0, 0]).all()
        if bool(off.any()):
            said = f"sym {config.get('sym')}, checkpoint_format {version}, which stores them {GPTQ_STORED[version]}"
            raise LabError(
                f"{name}: a zero point is {int(zero[off][0])}, but {place} says {said}",
                "correct there what the tool that wrote the file did not do",
            )
        if int(zero.max()) == 2 * middle:
            raise LabError(f"{name}: a zero point is {2 * middle}, beyond {bits} bits: libraries differ on it", USE)
        return _unpacked(parts["qweight"].T, bits), parts["scales"].T, zero

    scales = found.scales("scales")
    return Quantization(
        format=Format(f"int{bits}", found.divided(group), zeros=True, half=scales == ("F16",)),
        group=group,
        shapes=shapes,
        dtypes={"qweight": ("I32",), "qzeros": ("I32",), "scales": scales, "g_idx": ("I32",)},
        numbers=numbers,
        keeps=_not_chosen(found),
        unused=NOTHING,
        reading=found.text,
    )


def _awq(found: Found) -> Quantization:
    """4-bit integers packed along the rows, eight of which are in a word in the order AWQ_ORDER."""
    of_weights = ("bits", "group_size", "zero_point", "version", "format", "modules_to_not_convert", "desc_act", "sym")
    check_keys(found.place, found.config, LOADING, CALIBRATION, of_weights)
    group = found.group()
    found.only("bits", 4)
    found.only("zero_point", True, default=True)
    found.only("desc_act", False, default=False)
    if found.config.get("backend") == "llm-awq" or found.spelled("version", "format", "gemm") != "gemm":
        what = ", ".join(f"{key} {short(found.config.get(key))}" for key in ("version", "format", "backend"))
        raise LabError(f"{found.place}: {what}, and only the layout of version gemm is read", USE)

    def shapes(rows: int, columns: int) -> Shapes:
        groups = -(-columns // (group or columns))
        return {"qweight": (columns, rows // 8), "qzeros": (groups, rows // 8), "scales": (groups, rows)}

    def ordered(words: "torch.Tensor") -> "torch.Tensor":
        nibbles = _unpacked(words, 4).view(len(words), -1, 8)
        return nibbles[:, :, [AWQ_ORDER.index(i) for i in range(8)]].reshape(len(words), -1).T

    scales = found.scales("scales")
    return Quantization(
        format=Format("int4", found.divided(group), zeros=True, half=scales == ("F16",)),
        group=group,
        shapes=shapes,
        dtypes={"qweight": ("I32",), "qzeros": ("I32",), "scales": scales},
        numbers=lambda parts, name: (ordered(parts["qweight"]), parts["scales"].T, ordered(parts["qzeros"]).int()),
        keeps=found.not_converted("modules_to_not_convert"),
        unused=NOTHING,
        reading=found.text,
    )


def _compressed(found: Found) -> Quantization:
    """Integers packed along the columns with half of their range added, int8 as it is, or e4m3."""
    dense = ("sparsity_config",) if _format(found.config.get("sparsity_config")) == "dense" else ()
    check_keys(
        found.place, found.config, LOADING, STATUS, dense, ("config_groups", "format", "ignore", "kv_cache_scheme")
    )
    groups = found.config.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise LabError(f"{found.place}: config_groups is {short(groups)}, not one group for all matrices", USE)
    group = found.below("config_groups", *groups.values())
    check_keys(group.place, group.config, ("targets", "weights", "format"), ACTIVATIONS)
    group.only("targets", ["Linear"])
    for scheme in (*(group.config.get(key) for key in ACTIVATIONS), found.config.get("kv_cache_scheme")):
        if scheme is not None:
            of_inputs = found.below("a scheme of activations", scheme)
            check_keys(of_inputs.place, of_inputs.config, ARGUMENTS)
    layout, given = group.config.get("format"), found.config.get("format")
    if layout is not None and given not in (layout, "mixed-precision"):
        raise LabError(f"{found.place}: format is {short(given)}, and its group's is {short(layout)}", USE)
    return _of_scheme(found, group.below("weights", group.config.get("weights")), given if layout is None else layout)


def _of_scheme(found: Found, weights: Found, layout: Any) -> Quantization:
    """Layout of the matrices that `weights` describes. layout: the name of its format in compressed-tensors."""
    place, given = weights.place, weights.config
    check_keys(place, given, ARGUMENTS)
    kind, strategy = given.get("type"), given.get("strategy")
    known = {"pack-quantized": ("int",), "int-quantized": ("int",), "float-quantized": ("float",)}
    if kind not in (known | {"naive-quantized": ("int", "float")}).get(str(layout), ()) or strategy not in STRATEGIES:
        what = f"format {short(layout)}, type {short(kind)}, strategy {short(strategy)}"
        raise LabError(f"{place}: {what}", "give int or float weights by channel or group, or use a bf16 checkpoint")
    if kind == "float":
        weights.only("num_bits", 8)
    weights.only("dynamic", False, default=False)
    weights.only("block_structure", None)
    weights.only("symmetric", True, False, default=True)
    weights.only("actorder", None, False, "static", "weight")  # others permute columns
    bits, size = weights.bits("num_bits"), weights.group(-1)
    if (strategy == "group") != (size > 0):
        raise LabError(f"{place}: strategy is {strategy}, and group_size {short(given.get('group_size'))}", USE)
    packed, zeros, each = layout == "pack-quantized", not given.get("symmetric", True), 32 // bits
    if not packed:
        weights.only("symmetric", True, default=True)
    half = 2 ** (bits - 1)

    def shapes(rows: int, columns: int) -> Shapes:
        scale = {"weight_scale": (rows, -(-columns // (size or columns)))}
        if not packed:
            return {"weight": (rows, columns), **scale}
        zero = {"weight_zero_point": (rows // each, scale["weight_scale"][1])} if zeros else {}
        return {"weight_packed": (rows, columns // each), "weight_shape": (2,), **scale, **zero}

    def numbers(parts: Parts, name: str) -> Numbers:
        import torch

        scale = parts["weight_scale"]
        zero = torch.zeros(scale.shape, dtype=torch.int32)
        if packed:
            weight, stored = _unpacked(parts["weight_packed"], bits), parts["weight_shape"].tolist()
            if stored != [*weight.shape]:
                raise LabError(f"{name}: weight_shape is {stored}, and weight_packed has {[*weight.shape]}", AGAIN)
            if zeros:
                zero = _unpacked(parts["weight_zero_point"].T, bits).T.int()
            return weight, scale, zero
        weight = parts["weight"]
        if kind == "float":
            return weight.view(torch.uint8), scale, zero
        if int(weight.min()) < -half or int(weight.max()) >= half:
            raise LabError(
                f"{name}: numbers from {weight.min()} to {weight.max()}, but {place} has num_bits {bits}", USE
            )
        return (weight.int() + half).byte(), scale, zero

    scales, number = found.scales("weight_scale"), ("I32",) if packed else ("F8_E4M3",) if kind == "float" else ("I8",)
    return Quantization(
        format=Format("fp8" if kind == "float" else f"int{bits}", found.divided(size), zeros, scales == ("F16",)),
        group=size,
        shapes=shapes,
        dtypes={
            "weight_packed" if packed else "weight": number,
            "weight_shape": ("I64", "I32"),
            "weight_scale": scales,
            "weight_zero_point": ("I32",),
        },
        numbers=numbers,
        keeps=_ignored(found),
        unused=f"{INPUTS}|{OF_CACHE}",
        reading=found.text,
    )


def _format(config: Any) -> Any:
    return config.get("format") if isinstance(config, Mapping) else None


def _not_chosen(found: Found) -> Callable[[str], bool]:
    """True for the name of a matrix that a list of those to quantize leaves out."""
    key = "modules_in_block_to_quantize"
    blocks = found.config.get(key)
    if isinstance(blocks, list) and all(isinstance(block, list) for block in blocks):
        blocks = [one for block in blocks for one in block]
    ends = tuple(replace(found, config={key: blocks}).names(key))
    return lambda module: bool(ends) and not module.endswith(ends)


def _ignored(found: Found) -> Callable[[str], bool]:
    """True for the name of a module that `ignore` leaves in bf16: itself, its class, or a pattern after `re:`."""
    listed = found.names("ignore")
    pattern = found.pattern("ignore", [one.removeprefix("re:") for one in listed if one.startswith("re:")])
    return lambda module: bool(pattern.match(module)) or module in listed or "Linear" in listed


def _unpacked(words: "torch.Tensor", bits: int) -> "torch.Tensor":
    """uint8 numbers [rows, columns] of int32 words [rows, columns * bits / 32], the lowest bits first."""
    import torch

    content = words.contiguous().view(torch.uint8)
    return content if bits == 8 else torch.stack((content & 15, content >> 4), dim=2).view(len(words), -1)
