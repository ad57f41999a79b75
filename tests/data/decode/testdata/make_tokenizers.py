#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizers/: small tokenizers, trained here, and what the reference makes of texts with them.

NAME.json is a tokenizer.json of Hugging Face tokenizers, NAME.tiktoken a file of ranks. texts.txt has texts, one a
line, in hex; NAME.txt has lines of "NUMBER MODE id id …": the number of the text, and plain (special tokens are text),
parse, or template (parse and add the template); where it does not follow, parse is as plain. nfc.txt has lines
"hex hex": text and its NFC. Needs tokenizers and tiktoken; written with tokenizers 0.23.3 and tiktoken 0.14.0.
"""
import base64
import json
import pathlib
import random
import unicodedata

import tiktoken
import tiktoken_ext.openai_public as public
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).parent / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CORPUS = ["The quick brown fox jumps over the lazy dog. It isn't what you'd think; they're we'll I'm he's I've.",
          "int main(int argc, char** argv) {\n  for (int i = 0; i < 1000; ++i) {\n    printf(\"%d\\n\", i);\n  }\n}\n",
          "Straße, déjà vu, naïve café; 東京都 こんにちは 世界, Привет мир, שלום, مرحبا, हिन्दी, ไทย, 한국어",
          "Numbers 1234567 and 3.14159, dates 2024-11-30; emails a.b@c.org, https://example.org/path?q=1&r=2",
          "a  b   c\td \n\n  e\r\n\r\n f\n", "def f(x):\n\treturn x**2 + 1  # comment\n\n\nclass A:\n    pass\n"] * 4
SPECIALS = ["<|endoftext|>", "<|end|>", "<|end|>x"]
PIECES = [" ", "  ", "\n", "\r\n", "\t", "'s", "'S", "'re", "'LL", "'\u017f", "'", "’s", "a", "Ab", "ABc", "É", "é", "e\u0301", "ǅ", "ʰ",
          "ª", "世", "界", "1", "12", "1234", "٣", "½", "²", "!", "?!", "...", "/", "//\n", "_", "\u00a0", "\u2003", "\u3000",
          "\u200b", "\u0301", "\u0903", "😀", "👩‍👩‍👧", "한", "\u1112\u1161\u11ab", "ﬁ", "Å", "Åre", "A\u030are", "\u212b", "\ufeff", "\x00", "\x7f", "<|end|>",
          "<|endoftext|>", "<|end|>x", "<|en", "word", " word", "The", "return", "camelCase", "HTTPServer", "x" * 70, "ab" * 50,
          "\U000e0100", "\U0001e900", "\U0001e922", "\U00020000"]


def texts():
    rng = random.Random(11)
    every = ["", " ", "\n", "Hello, world!"] + CORPUS[:6]
    every += ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 9))) for _ in range(250)]
    return every


def hugging_face(name, pattern, normalizer=None, ignore_merges=False, prefix_space=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=pattern is None)
    tokenizer.pre_tokenizer = byte_level if pattern is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_tokens(["quick brown", "Åre"])
    begin = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", begin)])])
    file = json.loads(tokenizer.to_str())
    if name == "gpt2":  # the older way to write merges
        file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    (OUT / f"{name}.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")))
    tokenizer = Tokenizer.from_file(str(OUT / f"{name}.json"))

    def encode(text, mode):
        tokenizer.encode_special_tokens = mode == "plain"
        return tokenizer.encode(text, add_special_tokens=mode == "template").ids

    save(name, encode, ["plain", "parse", "template"])


def save(name, encode, modes):
    lines = []
    for number, text in enumerate(texts()):
        plain = encode(text, "plain")
        lines.append(" ".join(map(str, [number, "plain", *plain])))
        for mode in modes[1:]:
            ids = encode(text, mode)
            if mode == "parse" and ids != plain or mode == "template" and number % 20 == 0:
                lines.append(" ".join(map(str, [number, mode, *ids])))
    (OUT / f"{name}.txt").write_text("\n".join(lines) + "\n")


def ranks_file(name, pattern):
    """Ranks in the order of the merges that training finds with this pattern."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    alphabet = bytes_of_characters()
    ranks = {bytes([b]): b for b in range(256)}
    for left, right in json.loads(tokenizer.to_str())["model"]["merges"]:
        ranks.setdefault(bytes(alphabet[c] for c in left + right), len(ranks))
    (OUT / f"{name}.tiktoken").write_bytes(
        b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return ranks


def bytes_of_characters():
    alphabet, extra = {}, 256
    for b in range(256):
        if 0x21 <= b <= 0x7E or (0xA1 <= b <= 0xFF and b != 0xAD):
            alphabet[chr(b)] = b
        else:
            alphabet[chr(extra)] = b
            extra += 1
    return alphabet


def tiktokens():
    for name, encoding in (("r50k", public.r50k_pat_str), ("cl100k", None), ("o200k", None)):
        pattern = encoding or find_pattern(f"{name}_base")
        ranks = ranks_file(name, LLAMA3)
        special = {text: len(ranks) + i for i, text in enumerate(SPECIALS[:2])}
        reference = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        save(name, lambda text, mode: reference.encode_ordinary(text) if mode == "plain" else
             reference.encode(text, allowed_special="all"), ["plain", "parse"])


def find_pattern(name):
    load = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda *_, **__: {}
    try:
        return getattr(public, name)()["pat_str"]
    finally:
        public.load_tiktoken_bpe = load


def nfc():
    rng = random.Random(5)
    # Characters that Unicode 14 has, so that every release composes them in the same way.
    pool = [c for c in map(chr, range(0xC0, 0x30000)) if unicodedata.decomposition(c) or unicodedata.combining(c)]
    pool += [chr(c) for c in range(0x1100, 0x1200)] + list("aeou") * 40 + [chr(c) for c in range(0xAC00, 0xD7A4, 371)]
    lines = []
    for _ in range(600):
        text = "".join(rng.choice(pool) for _ in range(rng.randint(1, 6)))
        if rng.random() < 0.5:
            text = unicodedata.normalize("NFD", text)
        lines.append(f"{text.encode().hex()} {unicodedata.normalize('NFC', text).encode().hex()}")
    (OUT / "nfc.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    (OUT / "texts.txt").write_text("\n".join(text.encode().hex() or "-" for text in texts()) + "\n")
    hugging_face("gpt2", None)
    hugging_face("gpt2_space", None, prefix_space=True)
    hugging_face("llama3", LLAMA3, ignore_merges=True)
    hugging_face("qwen2", QWEN2, normalizer=normalizers.NFC())
    tiktokens()
    nfc()
