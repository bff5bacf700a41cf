#!/usr/bin/env python3
"""Records the names and shapes of the tensors of networks of torchvision, timm and transformers, so that a test can
compare those that millrace writes with them.

    python3 tests/parity/state_dicts.py [FILE]        default: recorded/state_dicts.json beside this file
"""
import json
import pathlib
import sys

import timm
import torch
import torchvision
import transformers


def networks():
    yield "resnet18", torchvision.models.resnet18(num_classes=10)
    yield "resnet50", torchvision.models.resnet50(num_classes=10)
    yield "vit", timm.create_model("vit_tiny_patch16_224", num_classes=10)
    yield "convnext", timm.create_model("convnext_tiny", num_classes=10)
    yield "gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=65, n_positions=32, n_embd=128, n_layer=4, n_head=4))
    yield "llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=65, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2))


def main():
    default = pathlib.Path(__file__).parent / "recorded" / "state_dicts.json"
    versions = {module.__name__: module.__version__ for module in (torch, torchvision, timm, transformers)}
    shapes = {name: {key: list(value.shape) for key, value in net.state_dict().items()} for name, net in networks()}
    lines = ",\n  ".join(f'"{name}": {json.dumps(of, separators=(",", ":"))}' for name, of in shapes.items())
    text = f'{{"versions": {json.dumps(versions)}, "networks": {{\n  {lines}\n}}}}\n'
    pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else default).write_text(text)


if __name__ == "__main__":
    main()
