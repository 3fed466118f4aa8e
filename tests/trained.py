"""A tokenizer trained on a small text, with the special tokens and the chat template of a Qwen3-like checkpoint."""

import random
from pathlib import Path
from typing import Any

TEXT = (
    "One kernel decodes a whole token. Its blocks wait for each other at a barrier, and each of them multiplies some "
    "rows. Wer zählt, misst: Größe, Übung, Maß. \u5186\u5468\u7387 \U0001f9ea \U0001f937 \u00e9\u00f1 end."
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{%- for message in messages %}{%- if message.role not in ('system', 'user', 'assistant') %}"
    "{{- raise_exception('unknown role ' + message.role) }}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}"
    "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
)


def save_tokenizer(folder: Path, vocab: int) -> Any:
    """Train a byte-level BPE of at most `vocab` ids and save it into a checkpoint's folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    one = Tokenizer(models.BPE())
    one.pre_tokenizer, one.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    one.train_from_iterator(
        [TEXT] * 3,
        trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=one, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def words(seed: int, count: int) -> str:
    """Some words of the text."""
    return " ".join(random.Random(seed).choices(TEXT.split(), k=count))


def save_checkpoint(folder: Path, seed: int, positions: int = 160) -> Any:
    """A small random Qwen3 with bf16 weights and a trained tokenizer, which is returned."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=331,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rope_theta=1e6,
        tie_word_embeddings=True,
        max_position_embeddings=positions,
        initializer_range=0.3,
        eos_token_id=SPECIAL.index("<|im_end|>"),
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return save_tokenizer(folder, 331)
