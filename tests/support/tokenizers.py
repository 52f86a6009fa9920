"""Tiny tokenizers, one a family, and engine directories around them."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from jetway.builder import manifest

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BOS, EOS = "<s>", "</s>"
SPECIAL_TOKENS = (BOS, EOS, "<|im_start|>", "<|im_end|>")


def byte_level() -> Tokenizer:
    """Every byte is a token, so every character beyond ASCII is split; plain text gets a BOS."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: index for index, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def metaspace(*, strips: bool = True) -> Tokenizer:
    """As SentencePiece makes them: words begin with "▁", unknown characters fall back to bytes.

    The decoder drops the space before the first word, unless `strips` is false.
    """
    pieces = ["<unk>", BOS, EOS, "▁the", "▁cat", "▁", "s", "at"] + [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = [(piece, -float(rank)) for rank, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    steps: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def wordpiece() -> Tokenizer:
    """As BERT's: words are joined by spaces unless a piece begins with "##", and the decoder tidies punctuation."""
    pieces = ["[UNK]", "the", "cat", "##s", ".", "do", "n", "'", "t", "not"]
    pieces += [prefix + letter for prefix in ("", "##") for letter in "abéе漢가א🙂"]
    tokenizer = Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    return tokenizer


def words(*vocab: str) -> Tokenizer:
    """Each word a token; text is decoded without anything between them. Encodes nothing but whole words."""
    ids = {word: index for index, word in enumerate(vocab)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=vocab[0]))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def ids_of(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    """The ids of tokens of the vocabulary, each as it stands there."""
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    return [vocab[token] for token in tokens]


def write_engine(directory: Path, tokenizer: Tokenizer, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """An engine directory with a tokenizer and no model: all that a gateway reads. Returns the directory."""
    tokenizer.save(str(directory / manifest.TOKENIZER_FILE))
    if chat_template is not None:
        (directory / manifest.CHAT_TEMPLATE_FILE).write_text(chat_template, encoding="utf-8")
    eos = tokenizer.token_to_id(EOS)
    manifest.write(
        manifest.Manifest(
            engine="openvino",
            engine_id="00" * 32,
            model_name="tiny",
            architecture="LlamaForCausalLM",
            dtype="float32",
            kv_cache_dtype="f32",
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_size=8,
            max_position_embeddings=512,
            tokens_per_block=32,
            max_batch_size=4,
            max_num_tokens=256,
            max_seq_len=512,
            tokens=manifest.Tokens(eos_ids=() if eos is None else (eos,), bos=BOS, eos=EOS, unk=None, pad=None),
            files={},
            built_with={"jetway-llm": "0"},
        ),
        directory,
    )
    return directory
