#!/usr/bin/env python3
"""Trains the small tokenizer of tests/fixtures/text and records what the libraries make of text.txt.

Usage: pip install tokenizers==0.23.3 transformers==5.24.0 tiktoken==0.14.0; tests/text/record.py TRAINING_TEXT
"""
import json
import pathlib
import sys

import tiktoken
import tokenizers
import transformers
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

END = "<|endoftext|>"
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
folder = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "text"
text = (folder / "text.txt").read_bytes().decode(errors="replace")
trained = tokenizers.ByteLevelBPETokenizer()
trained.train_from_iterator([pathlib.Path(sys.argv[1]).read_text(), text], vocab_size=700, show_progress=False)
model = json.loads(trained.to_str())["model"]
vocab = model["vocab"]
vocab[END] = len(vocab)  # at the end, as in GPT-2
(folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False) + "\n")
pairs = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
(folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(pairs) + "\n")

files = [str(folder / name) for name in ("vocab.json", "merges.txt")]
tokens = transformers.GPT2Tokenizer(vocab=files[0], merges=files[1])(text)["input_ids"]
fast = tokenizers.ByteLevelBPETokenizer(*files)
fast.add_special_tokens([END])
assert fast.encode(text).ids == tokens
ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=files[1], encoder_json_file=files[0])
other = tiktoken.Encoding("test", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={END: vocab[END]})
assert other.encode(text, allowed_special="all") == tokens
libraries = [f"{m.__name__} {m.__version__}" for m in (transformers, tokenizers, tiktoken)]
(folder / "tokens.json").write_text(json.dumps({"libraries": libraries, "tokens": tokens}) + "\n")
