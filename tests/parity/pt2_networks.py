"""Networks of torchvision, timm, transformers and MONAI, as they come, and some that were written by hand. pt2_table.py
trains them. Those that do not train are here too: the table has the reason."""
import dataclasses
import typing

import torch.nn as nn

import pt2_models
import pt2_recurrent

CLASSES = 10


@dataclasses.dataclass
class Network:
    library: str
    name: str
    make: typing.Callable[[], nn.Module]
    sample: list  # channels last; one axis: tokens
    target: str = "class"  # "map": a class at each position; tokens: the next one at each position, or behind the "last"
    outputs: int = CLASSES
    rows: int = 8
    lr: float = 0.01
    adamw_lr: float = 1e-4


# Learning rates of SGD and AdamW. Batch norms over a few values, and ReLU, let rounding in float32 change the gradients
# by a hundredth, also in PyTorch. So rates are lower where ten losses would otherwise tell nothing.
RATES = {"torchvision": (1e-3, 1e-5), "timm": (1e-3, 1e-5)} | dict.fromkeys(
    ("resnet18", "mobilenet_v2", "mnasnet0_5", "efficientnet_b0", "regnet_y_400mf", "resnet10t", "ghostnet_100",
     "regnetx_002", "lcnet_050", "efficientvit_b0", "mobilenetv4_conv_small", "ResNet, 3-D",
     "LevitForImageClassification"), (1e-5, 1e-7))


class Result(nn.Module):
    """One of the values that a network returns: that which the loss reads."""

    def __init__(self, network, key):
        super().__init__()
        self.network, self.key = network, key

    def forward(self, x):
        return self.network(x)[self.key]


class Enlarged(Result):
    """Logits at each pixel of the image, as the loss of the library makes them."""

    def forward(self, x):
        return nn.functional.interpolate(super().forward(x), size=x.shape[2:], mode="bilinear", align_corners=False)


# The side of the images, and what the network is made with.
TORCHVISION = {
    "resnet18": (64, {}), "mobilenet_v2": (64, {}), "mobilenet_v3_small": (64, {}),
    "efficientnet_b0": (64, {}), "regnet_y_400mf": (64, {}), "mnasnet0_5": (64, {}), "convnext_tiny": (32, {}),
    "squeezenet1_1": (64, {}), "shufflenet_v2_x0_5": (64, {}), "swin_t": (64, {}), "alexnet": (64, {}),
    "googlenet": (64, {"aux_logits": False, "init_weights": True}),
    "lraspp_mobilenet_v3_large": (64, {"weights_backbone": None}),
}
TIMM = {
    "vit_tiny_patch16_224": (64, {"img_size": 64}), "resnet10t": (64, {}), "mobilenetv4_conv_small": (64, {}),
    "regnetx_002": (64, {}), "ghostnet_100": (64, {}), "lcnet_050": (64, {}), "tinynet_e": (64, {}),
    "inception_next_atto": (64, {}), "convnext_atto": (32, {}),
    "deit3_small_patch16_224": (64, {"img_size": 64}), "mixer_s32_224": (64, {"img_size": 64}),
    "convnextv2_atto": (64, {}), "tf_efficientnetv2_b0": (64, {}), "poolformer_s12": (64, {}),
    "edgenext_xx_small": (64, {}), "mobilevit_xxs": (64, {}), "efficientvit_b0": (64, {}), "eca_resnet33ts": (64, {}),
    "xcit_nano_12_p16_224": (64, {}),
}


def torchvision_networks():
    import torchvision

    for name, (side, options) in TORCHVISION.items():
        dense = name.startswith("lraspp")

        def make(name=name, options=options, dense=dense):
            network = torchvision.models.get_model(name, num_classes=CLASSES, **options)
            return Result(network, "out") if dense else network

        yield Network("torchvision", name, make, [side, side, 3], "map" if dense else "class")
    yield Network("torchvision", "VisionTransformer", lambda: torchvision.models.VisionTransformer(
        image_size=64, patch_size=16, num_layers=4, num_heads=4, hidden_dim=192, mlp_dim=384, num_classes=CLASSES),
        [64, 64, 3])


def timm_networks():
    import timm

    for name, (side, options) in TIMM.items():
        yield Network("timm", name, lambda name=name, options=options: timm.create_model(
            name, num_classes=CLASSES, **options), [side, side, 3])


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
FEED_FORWARD = {"intermediate_size": 128}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TEXT = {"vocab_size": 40, "max_position_embeddings": 16}


def transformers_networks():
    import pt2_transformers
    import transformers

    def of(name, config, sample, target="class", outputs=CLASSES, **options):
        def make():
            made = getattr(transformers, config)(**options)
            return (Enlarged if target == "map" else Result)(getattr(transformers, name)(made), "logits")
        return Network("transformers", name, make, sample, target, outputs)

    labels, patches = {"num_labels": CLASSES}, {"image_size": 32, "patch_size": 8}
    yield of("ResNetForImageClassification", "ResNetConfig", [64, 64, 3], **labels, embedding_size=16,
             hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 1, 1])
    yield of("ConvNextForImageClassification", "ConvNextConfig", [64, 64, 3], **labels,
             hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 2, 1])
    yield of("ViTForImageClassification", "ViTConfig", [32, 32, 3], **labels, **patches, **SMALL, **FEED_FORWARD,
             **STILL)
    yield of("Dinov2ForImageClassification", "Dinov2Config", [32, 32, 3], **labels, **patches, **SMALL, **STILL)
    yield of("MobileNetV2ForImageClassification", "MobileNetV2Config", [64, 64, 3], **labels, image_size=64,
             classifier_dropout_prob=0.0)
    yield of("SegformerForSemanticSegmentation", "SegformerConfig", [64, 64, 3], "map", **labels, **STILL,
             hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], decoder_hidden_size=32, classifier_dropout_prob=0.0)
    yield from other_vision_networks(of)
    yield from language_networks(of)
    yield from pt2_transformers.networks(of)


def other_vision_networks(of):
    labels, patches, small = {"num_labels": CLASSES}, {"image_size": 32, "patch_size": 8}, {**SMALL, **FEED_FORWARD}
    yield of("DeiTForImageClassification", "DeiTConfig", [32, 32, 3], **labels, **patches, **small, **STILL)
    yield of("BeitForImageClassification", "BeitConfig", [32, 32, 3], **labels, **patches, **small, **STILL,
             drop_path_rate=0.0)
    yield of("SwinForImageClassification", "SwinConfig", [32, 32, 3], **labels, **STILL, image_size=32, patch_size=4,
             embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, drop_path_rate=0.0)
    yield of("CLIPForImageClassification", "CLIPConfig", [32, 32, 3], **labels, vision_config={**patches, **small})
    yield of("ConvNextV2ForImageClassification", "ConvNextV2Config", [64, 64, 3], **labels,
             hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 2, 1])
    yield of("MobileViTForImageClassification", "MobileViTConfig", [64, 64, 3], **labels, **STILL, image_size=64,
             hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 24, 32, 48, 64], classifier_dropout_prob=0.0)


def language_networks(of):
    words, labels, still = [12], {"num_labels": 40}, {**SMALL, **FEED_FORWARD, **STILL}
    gpt2 = {"vocab_size": 40, "n_positions": 16, "n_embd": 64, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0,
            "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    small = {**TEXT, **SMALL, **FEED_FORWARD, "use_cache": False}
    yield of("BertForSequenceClassification", "BertConfig", words, "last", 40, **TEXT, **labels, **still)
    yield of("BertForMaskedLM", "BertConfig", words, "next", 40, **TEXT, **still)
    yield of("DistilBertForSequenceClassification", "DistilBertConfig", words, "last", 40, **TEXT, **labels, dim=64,
             n_layers=2, n_heads=4, hidden_dim=128, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)
    yield of("RobertaForSequenceClassification", "RobertaConfig", words, "last", 40, **labels, **still, vocab_size=40,
             max_position_embeddings=20, pad_token_id=1)
    yield of("ElectraForTokenClassification", "ElectraConfig", words, "next", 40, **TEXT, **labels, **still,
             embedding_size=32)
    yield of("T5ForTokenClassification", "T5Config", words, "next", 40, **labels, vocab_size=40, d_model=64, d_kv=16,
             d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0, classifier_dropout=0.0, feed_forward_proj="gated-gelu")
    yield of("GPT2LMHeadModel", "GPT2Config", words, "next", 40, **gpt2)
    yield of("GPT2ForSequenceClassification", "GPT2Config", words, "last", 40, **gpt2, **labels, pad_token_id=1)
    yield of("GPTNeoXForCausalLM", "GPTNeoXConfig", words, "next", 40, **small, hidden_dropout=0.0,
             attention_dropout=0.0)
    yield of("OPTForCausalLM", "OPTConfig", words, "next", 40, **TEXT, hidden_size=64, num_hidden_layers=2,
             num_attention_heads=4, ffn_dim=128, word_embed_proj_dim=64, dropout=0.0, use_cache=False)
    yield of("LlamaForCausalLM", "LlamaConfig", words, "next", 40, **small, num_key_value_heads=2)
    yield of("LlamaForSequenceClassification", "LlamaConfig", words, "last", 40, **small, **labels, pad_token_id=1)
    yield of("MistralForCausalLM", "MistralConfig", words, "next", 40, **small, num_key_value_heads=2, sliding_window=5)
    yield of("Qwen2ForCausalLM", "Qwen2Config", words, "next", 40, **small, num_key_value_heads=2,
             tie_word_embeddings=True)
    yield of("Qwen3ForCausalLM", "Qwen3Config", words, "next", 40, **small, num_key_value_heads=2, head_dim=16)
    yield of("Gemma2ForCausalLM", "Gemma2Config", words, "next", 40, **small, num_key_value_heads=2, head_dim=16)
    yield of("PhiForCausalLM", "PhiConfig", words, "next", 40, **small, resid_pdrop=0.0, embd_pdrop=0.0)
    yield from other_language_networks(of, words, {"num_labels": 40, **still}, small)


def other_language_networks(of, words, labelled, small):
    grouped = {**small, "num_key_value_heads": 2}
    yield of("AlbertForMaskedLM", "AlbertConfig", words, "next", 40, **TEXT, **labelled, embedding_size=32)
    yield of("DebertaV2ForTokenClassification", "DebertaV2Config", words, "next", 40, **TEXT, **labelled)
    yield of("MPNetForTokenClassification", "MPNetConfig", words, "next", 40, **labelled, vocab_size=40,
             max_position_embeddings=20)
    yield of("ModernBertForTokenClassification", "ModernBertConfig", words, "next", 40, **TEXT, **SMALL, **FEED_FORWARD,
             num_labels=40, pad_token_id=0, attention_dropout=0.0, mlp_dropout=0.0, embedding_dropout=0.0,
             classifier_dropout=0.0, local_attention=4, global_attn_every_n_layers=2)
    yield of("GPTNeoForCausalLM", "GPTNeoConfig", words, "next", 40, **TEXT, hidden_size=64, num_layers=2, num_heads=4,
             attention_types=[[["global", "local"], 1]], window_size=4, resid_dropout=0.0, embed_dropout=0.0,
             attention_dropout=0.0, use_cache=False)
    yield of("FalconForCausalLM", "FalconConfig", words, "next", 40, vocab_size=40, **SMALL, hidden_dropout=0.0,
             attention_dropout=0.0, use_cache=False)
    yield of("GemmaForCausalLM", "GemmaConfig", words, "next", 40, **small, num_key_value_heads=1, head_dim=16)
    yield of("GraniteForCausalLM", "GraniteConfig", words, "next", 40, **grouped)
    yield of("SmolLM3ForCausalLM", "SmolLM3Config", words, "next", 40, **grouped, pad_token_id=0)
    yield of("Starcoder2ForCausalLM", "Starcoder2Config", words, "next", 40, **grouped, residual_dropout=0.0,
             embedding_dropout=0.0)
    yield of("Olmo2ForCausalLM", "Olmo2Config", words, "next", 40, **small)
    yield of("Phi3ForCausalLM", "Phi3Config", words, "next", 40, **grouped, pad_token_id=0, resid_pdrop=0.0,
             embd_pdrop=0.0)


IMAGE, VOLUME = [32, 32, 1], [16, 16, 16, 1]


def monai_networks():
    from monai.networks import nets

    def of(name, sample, target, **options):
        note = f", {len(sample) - 1}-D"

        def make():
            network = getattr(nets, name)(**options)
            return Result(network, 0) if name == "ViT" else network
        return Network("MONAI", name + note, make, sample, target)

    for sample in (IMAGE, VOLUME):
        channels = {"spatial_dims": len(sample) - 1, "in_channels": 1, "out_channels": CLASSES}
        yield of("SegResNet", sample, "map", **channels, init_filters=8)
        yield of("DynUNet", sample, "map", **channels, kernel_size=[3, 3, 3], strides=[1, 2, 2],
                 upsample_kernel_size=[2, 2], filters=[8, 16, 32])
        yield of("ResNet", sample, "class", block="basic", layers=[1, 1, 1, 1], block_inplanes=[16, 32, 64, 128],
                 spatial_dims=len(sample) - 1, n_input_channels=1, num_classes=CLASSES)
        yield of("UNet", sample, "map", **channels, channels=(8, 16, 32), strides=(2, 2), num_res_units=2)
        yield of("AttentionUnet", sample, "map", **channels, channels=(8, 16, 32), strides=(2, 2))
    channels = {"in_channels": 1, "out_channels": CLASSES}
    yield of("DenseNet121", [64, 64, 1], "class", spatial_dims=2, **channels)
    yield of("BasicUNet", IMAGE, "map", spatial_dims=2, **channels, features=(8, 8, 16, 32, 64, 8))
    yield of("HighResNet", VOLUME, "map", spatial_dims=3, **channels)
    yield of("VNet", IMAGE, "map", spatial_dims=2, **channels)
    yield of("ViT", IMAGE, "class", spatial_dims=2, in_channels=1, img_size=32, patch_size=8, hidden_size=64,
             mlp_dim=128, num_layers=2, num_heads=4, classification=True, num_classes=CLASSES, post_activation="")
    yield of("UNETR", VOLUME, "map", **channels, img_size=16, feature_size=8, hidden_size=48, mlp_dim=96, num_heads=4)
    yield of("SwinUNETR", [64, 64, 1], "map", **channels, feature_size=12, spatial_dims=2)
    yield of("EfficientNetBN", [64, 64, 3], "class", model_name="efficientnet-b0", pretrained=False,
             num_classes=CLASSES)


def hand_written_networks():
    targets = {"unet": "map", "gpt": "next", "textlstm": "next", "textgru": "next", "textrnn": "next"}
    for make, _, sample, outputs, rate in pt2_models.CASES + pt2_recurrent.CASES:
        name = make.__name__.lower()
        if name != "random":
            yield Network("by hand", name, make, sample, targets.get(name, "class"), outputs, 8, rate / 5, rate / 20)


def without_randomness(network):
    """Dropout and stochastic depth with the probability 0."""
    for module in network.modules():
        name = type(module).__name__
        if "Dropout" in name or name == "StochasticDepth" or name.endswith("DropPath"):
            for attribute in ("p", "drop_prob"):
                if hasattr(module, attribute):
                    setattr(module, attribute, 0.0)
        if hasattr(module, "drop_connect_rate"):  # of MONAI's blocks
            module.drop_connect_rate = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        if isinstance(getattr(module, "drop_rate", None), float):  # of functional.dropout
            module.drop_rate = 0.0
        if isinstance(module, nn.Linear) and not module.weight.any():  # torchvision's heads
            module.reset_parameters()
    return network


def all_networks():
    for of in (hand_written_networks, torchvision_networks, timm_networks, transformers_networks, monai_networks):
        for network in of():
            for key in (network.library, network.name):
                network.lr, network.adamw_lr = RATES.get(key, (network.lr, network.adamw_lr))
            yield network
