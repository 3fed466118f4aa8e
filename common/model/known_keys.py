"""Keys of a config.json that change no number of a decode step, and the refusal of keys in no table.

What is in no table of the lab may change it, so it is refused by name, unless its value is null or empty: that asks for
nothing. tests/test_known_keys.py compares the tables with the configurations of transformers.
"""

from collections.abc import Collection, Mapping
from reprlib import repr as short
from typing import Any

from common.errors import LabError


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# How a checkpoint was made, is loaded, trained or sampled from; names; ids of a tokenizer.
METADATA = names(
    """_attn_implementation _attn_implementation_autoset _commit_hash _name_or_path attention_dropout
    attn_implementation base_model bos_token_id chunk_size_feed_forward decoder_start_token_id dtype eos_token_id
    finetuning_task gradient_checkpointing hidden_dropout id2label initializer_range is_decoder label2id mask_token_id
    max_sequence_length max_window_layers model_max_length model_name name_or_path num_labels output_attentions
    output_hidden_states pad_token pad_token_id prefix pretraining_tp problem_type processor_class return_dict
    sep_token_id seq_length task_specific_params tf_legacy_loss tie_encoder_decoder tokenizer_class
    tokenizer_model_max_length torch_dtype torchscript transformers.js_config transformers_version unk_token_id
    unsloth_fixed unsloth_version use_bfloat16 use_cache"""
)
GENERATION = names(  # transformers' GenerationConfig: configurations before 4.40 have all of it
    """assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty
    do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens
    min_length no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams
    num_return_sequences output_scores remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens
    target_lookbehind temperature top_k top_p typical_p"""
)


def check_keys(place: str, found: Mapping[str, Any], *known: Collection[str]) -> None:
    """Raise LabError for a key of `found` that is in none of `known` and asks for something. place: for messages."""
    for key in sorted(found.keys() - set().union(*known)):
        if found[key] is not None and found[key] not in ({}, []):
            raise LabError(
                f"{place} has {short(key)}: {short(found[key])}, which the lab does not know",
                f"take {short(key)} out if the model computes the same without it, else use another checkpoint",
            )
