"""A small byte-level BPE tokenizer trained on a domain's own text, with a chat template."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TURN_END = "<|end|>"
MARKS = ("<|pad|>", TURN_END, "<|system|>", "<|user|>", "<|assistant|>")
"""Tokens that are not text; they have the first ids."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
IMAGE_MARKS = ("<|image|>", "<|video|>", "<|vision_start|>", "<|vision_end|>")
"""Tokens that represent or enclose images, with the last ids."""
SEEN_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message.role + '|>' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    # Images first, so that several questions about one image share it.
    "{% for part in message.content if part.type == 'image' %}"
    "{{ '<|vision_start|><|image|><|vision_end|>' }}"
    "{% endfor %}"
    "{% for part in message.content if part.type != 'image' %}{{ part.text }}{% endfor %}"
    "{% endif %}"
    "{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, spaces_apart: bool = False, sees: bool = False
) -> PreTrainedTokenizerFast:
    """Returns a tokenizer of at most `vocab_size` tokens, the same for the same texts. It encodes
    any text: unknown words fall back to bytes.

    `spaces_apart`: a space is a separate token, so that a word has the same tokens after a space as
    after a quotation mark. Texts get longer; it helps if the model types words that it reads in
    quotes. `sees`: chats may contain images."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *([pre_tokenizers.Split(" ", "isolated")] if spaces_apart else []),
            # Numbers stay whole words ("cabinet 12") and punctuation never merges with letters, so
            # that a name has the same tokens everywhere.
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token=TURN_END
    )
    wrapped.chat_template = CHAT_TEMPLATE
    if sees:
        wrapped.add_special_tokens({"additional_special_tokens": [*IMAGE_MARKS]})
        wrapped.chat_template = SEEN_CHAT_TEMPLATE
    return wrapped
