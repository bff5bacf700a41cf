"""More networks of transformers, for pt2_networks.py."""
from pt2_networks import CLASSES, FEED_FORWARD, SMALL, STILL, TEXT

WORDS = [12]
DECODER = {**TEXT, **SMALL, **FEED_FORWARD, "use_cache": False}
GROUPED = {**DECODER, "num_key_value_heads": 2}
OF_GPT = {"vocab_size": 40, "n_positions": 16, "n_embd": 64, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0,
          "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}


def decoders(of):
    def next_token(name, **options):
        return of(name + "ForCausalLM", name + "Config", WORDS, "next", 40, **options)

    yield next_token("GPTJ", **OF_GPT, rotary_dim=8)
    yield next_token("CodeGen", **OF_GPT, n_ctx=16, rotary_dim=8)
    yield next_token("GPTBigCode", **OF_GPT)
    yield next_token("Mpt", vocab_size=40, d_model=64, n_heads=4, n_layers=2, max_seq_len=16, use_cache=False)
    yield next_token("Cohere", **GROUPED, pad_token_id=0)
    yield next_token("Cohere2", **GROUPED, pad_token_id=0, sliding_window=5)
    yield next_token("Olmo", **DECODER)
    yield next_token("Olmo3", **DECODER)
    yield next_token("StableLm", **GROUPED)
    yield next_token("Persimmon", **DECODER)
    yield next_token("BioGpt", **DECODER, **STILL, activation_dropout=0.0)
    yield of("Gemma3ForCausalLM", "Gemma3TextConfig", WORDS, "next", 40, **GROUPED, head_dim=16, sliding_window=5)
    for name in ("Helium", "Glm", "Glm4"):
        yield next_token(name, **GROUPED, head_dim=16, pad_token_id=0)
    yield next_token("Lfm2", **GROUPED, layer_types=["conv", "full_attention"])
    yield next_token("Bloom", vocab_size=40, hidden_size=64, n_layer=2, n_head=4, hidden_dropout=0.0,
                     attention_dropout=0.0, use_cache=False)


def encoders(of):
    labelled = {**SMALL, **FEED_FORWARD, **STILL, "num_labels": 40}

    def of_tokens(name, **options):
        return of(name + "ForTokenClassification", name + "Config", WORDS, "next", 40, **labelled, **options)

    for name in ("Deberta", "Ernie", "MegatronBert"):
        yield of_tokens(name, **TEXT)
    yield of_tokens("XLMRoberta", vocab_size=40, max_position_embeddings=20, pad_token_id=1)
    yield of_tokens("SqueezeBert", **TEXT, embedding_size=64)
    yield of_tokens("MobileBert", **TEXT, embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32)
    yield of_tokens("Nystromformer", **TEXT, num_landmarks=12, segment_means_seq_len=12)
    yield of_tokens("ConvBert", **TEXT, embedding_size=64)


def vision(of):
    patches, small = {"image_size": 32, "patch_size": 8}, {**SMALL, **FEED_FORWARD}

    def of_images(name, side, **options):
        return of(name + "ForImageClassification", name + "Config", [side, side, 3], num_labels=CLASSES, **options)

    yield of_images("Siglip", 32, vision_config={**patches, **small})
    yield of_images("Data2VecVision", 32, **patches, **small, **STILL, drop_path_rate=0.0)
    stages = {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}
    yield of_images("PvtV2", 64, image_size=64, **stages, **STILL, drop_path_rate=0.0)
    yield of_images("Levit", 64, image_size=64, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4],
                    depths=[1, 1, 1], key_dim=[16, 16, 16], drop_path_rate=0)
    yield of_images("FocalNet", 32, image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], focal_levels=[2, 2],
                    focal_windows=[3, 3], hidden_dropout_prob=0.0, drop_path_rate=0.0)
    yield of_images("Swinv2", 32, **STILL, image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4],
                    window_size=4, drop_path_rate=0.0)


def networks(of):
    yield from decoders(of)
    yield from encoders(of)
    yield from vision(of)
