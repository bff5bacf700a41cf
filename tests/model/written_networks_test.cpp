// The networks that are written in the text form.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "millrace/base/error.hpp"
#include "millrace/model/layout.hpp"
#include "millrace/model/zoo.hpp"
#include "support/expect_error.hpp"

namespace millrace {
namespace written_networks_test {

using test::expect_error;

ModelSpec spec_of(const std::string& name, const std::string& size, std::int64_t outputs) {
  ModelSpec spec;
  spec.name = name;
  spec.size = size;
  spec.outputs = outputs;
  spec.tokens = name == "gpt2" || name == "llama";
  return spec;
}
Graph language(const ModelSpec& spec, std::int64_t window) {
  return build_model(spec, {1, {window}, DType::u16, {window}, true}, DType::f32, Mode::train);
}
Graph images(const ModelSpec& spec, std::int64_t side = 224) {
  return build_model(spec, {1, {side, side, 3}, DType::u8, {}, true}, DType::f32, Mode::train);
}

// OpenAI's checkpoints, as Hugging Face counts them.
TEST(WrittenNetworks, Gpt2HasThePublishedParameterCounts) {
  EXPECT_EQ(language(spec_of("gpt2", "124M", 50257), 1024).parameter_count(), 124439808);
  EXPECT_EQ(language(spec_of("gpt2", "350M", 50257), 1024).parameter_count(), 354823168);
  EXPECT_EQ(language(spec_of("gpt2", "774M", 50257), 1024).parameter_count(), 774030080);
  EXPECT_EQ(language(spec_of("gpt2", "1558M", 50257), 1024).parameter_count(), 1557611200);
}

// TinyLlama-1.1B, Llama-2-7b, Meta-Llama-3-8B.
TEST(WrittenNetworks, LlamaHasThePublishedParameterCounts) {
  EXPECT_EQ(language(spec_of("llama", "1.1B", 32000), 16).parameter_count(), 1100048384);
  EXPECT_EQ(language(spec_of("llama", "7B", 32000), 16).parameter_count(), 6738415616);
  EXPECT_EQ(language(spec_of("llama", "8B", 128256), 16).parameter_count(), 8030261248);
}

// timm's vit_*_patch16_224 and convnext_tiny.
TEST(WrittenNetworks, ImageNetworksHaveThePublishedParameterCounts) {
  EXPECT_EQ(images(spec_of("vit", "tiny", 1000)).parameter_count(), 5717416);
  EXPECT_EQ(images(spec_of("vit", "small", 1000)).parameter_count(), 22050664);
  EXPECT_EQ(images(spec_of("vit", "base", 1000)).parameter_count(), 86567656);
  EXPECT_EQ(images(spec_of("convnext", "tiny", 1000)).parameter_count(), 28589128);
}

// The articles state 4.5 and 17.6 giga multiply-adds.
TEST(WrittenNetworks, ImageNetworksHaveThePublishedWork) {
  EXPECT_NEAR(images(spec_of("convnext", "tiny", 1000)).forward_flops() / 2, 4.46e9, 0.02e9);
  EXPECT_NEAR(images(spec_of("vit", "base", 1000)).forward_flops() / 2, 17.58e9, 0.05e9);
}

TEST(WrittenNetworks, KeysReplaceWhatASizeHas) {
  ModelSpec spec = spec_of("gpt2", "124M", 256);
  spec.blocks = 2;
  spec.width = 64;
  spec.heads = 2;
  const std::int64_t block = 2 * 2 * 64 + (64 * 3 + 64 + 4 * 64 + 64) + 64 * 64 * (3 + 1 + 4 + 4);
  EXPECT_EQ(language(spec, 8).parameter_count(), 256 * 64 + 8 * 64 + 2 * block + 2 * 64);
  ModelSpec llama = spec_of("llama", "tiny", 256);
  llama.width = 256;  // 352 / 128 of it are 704
  const Graph wide = language(llama, 8);
  EXPECT_TRUE(std::ranges::any_of(wide.parameters, [](const Parameter& p) {
    return p.name == "layers.0.mlp.gate_up_proj.weight" && p.shape == Shape{2 * 704, 256};
  }));
  spec.heads = 5;
  expect_error(Exit::config, "model.heads: 5 heads do not divide a width of 64", [&] { language(spec, 8); });
}

TEST(WrittenNetworks, StochasticDepthRisesWithTheBlock) {
  ModelSpec spec = spec_of("vit", "tiny", 10);
  spec.drop_path = 0.22;
  std::vector<float> found;
  for (const Node& node : images(spec, 32).nodes)
    if (const auto* dropout = std::get_if<DropoutSpec>(&node.spec)) {
      EXPECT_TRUE(dropout->whole_rows);
      found.push_back(dropout->probability);
    }
  ASSERT_EQ(found.size(), 22u) << "two in each block but the first";
  EXPECT_FLOAT_EQ(found.front(), 0.02f);
  EXPECT_FLOAT_EQ(found.back(), 0.22f);
}

TEST(WrittenNetworks, TransformersDropAttentionWeightsAndKeepDocumentsApart) {
  for (const std::string name : {"gpt2", "llama", "vit"}) {
    ModelSpec spec = spec_of(name, "tiny", 256);
    const auto build = [&] { return spec.tokens ? language(spec, 8) : images(spec, 32); };
    const auto plain = describe_function(build());
    spec.attention_dropout = 0.1f;
    EXPECT_EQ(describe_function(build()), plain) << "the same function in inference";
    if (spec.tokens) spec.separator = 255;
    const Graph g = build();
    std::set<std::uint32_t> layers;
    int blocks = 0;
    for (const Node& node : g.nodes)
      if (const auto* attention = std::get_if<AttentionSpec>(&node.spec)) {
        ++blocks;
        layers.insert(attention->layer);
        EXPECT_EQ(attention->dropout, 0.1f);
        EXPECT_EQ(attention->documents, spec.tokens);
        EXPECT_EQ(node.src[1], Graph::ids);
        EXPECT_EQ(node.src.size(), spec.tokens ? 3u : 2u);
      }
    EXPECT_GE(blocks, 4);
    EXPECT_EQ(layers.size(), std::size_t(blocks)) << "each draws other numbers";
    EXPECT_EQ(describe_function(g) != plain, spec.tokens);
    EXPECT_EQ(std::ranges::count_if(g.nodes,
                                    [](const Node& node) { return std::holds_alternative<DocumentsSpec>(node.spec); }),
              spec.tokens);
  }
}

TEST(WrittenNetworks, LayerScaleBeginsWithItsConstant) {
  const Graph g = images(spec_of("convnext", "tiny", 10), 32);
  const ParameterLayout layout(g);
  std::vector<float> master(std::size_t(layout.count)), running(std::size_t(layout.stats_count));
  layout.initialise(g, 1, master.data(), running.data());
  int scales = 0;
  for (std::size_t p = 0; p < g.parameters.size(); ++p)
    if (g.parameters[p].name.ends_with(".gamma.weight")) {
      ++scales;
      EXPECT_EQ(master[std::size_t(layout.parameters[p].begin)], 1e-6f) << g.parameters[p].name;
    }
  EXPECT_EQ(scales, 18);
}

TEST(WrittenNetworks, WhatDoesNotFitIsRefused) {
  expect_error(Exit::config, "model.size: gpt2 has no size '125M'. use one of tiny, 124M",
               [] { language(spec_of("gpt2", "125M", 100), 8); });
  expect_error(Exit::config, "set data.sample = tokens and data.token_labels = every",
               [] { images(spec_of("gpt2", "tiny", 100)); });
  const auto with_separator = [](const char* name, std::int64_t token) {
    ModelSpec spec = spec_of(name, "tiny", 100);
    spec.separator = token;
    spec.tokens ? language(spec, 8) : images(spec, 32);
  };
  expect_error(Exit::config, "model.separator: token 100 is outside of the vocabulary (the data has tokens up to 99)",
               [&] { with_separator("gpt2", 100); });
  expect_error(Exit::config, "model.separator: it is for gpt2 and llama. set it to none",
               [&] { with_separator("vit", 1); });
  expect_error(Exit::config,
               "at least 8 patches of 4 pixels (model.patch) along each side, but the samples are 31x31x3",
               [] { images(spec_of("convnext", "tiny", 10), 31); });
  images(spec_of("convnext", "tiny", 10), 32);
  expect_error(Exit::config, "vit does not accept tokens", [] {
    ModelSpec spec = spec_of("vit", "tiny", 10);
    spec.tokens = true;
    language(spec, 8);
  });
}

TEST(WrittenNetworks, TextJoinsSlicesAndUpsamples) {
  ModelSpec spec = spec_of("layers", "auto", 10);
  spec.layers = {"conv 8 3 pad=same as=a",
                 "maxpool 2",
                 "conv 16 3 pad=same",
                 "upsample 2 mode=linear as=up",
                 "concat a",
                 "glu silu",
                 "scale init=0.5",
                 "slice 0 3 axis=0 as=top",
                 "slice 1 3 axis=0 from=up",
                 "concat top",
                 "globalpool",
                 "linear outputs"};
  const Graph g = images(spec, 8);
  std::vector<std::string> kinds;
  for (const Node& node : g.nodes)
    kinds.push_back(
        fmt::format("{} {}", name_of(node.spec), node.dst < 0 ? "" : g.values[std::size_t(node.dst)].shape.str()));
  EXPECT_EQ(kinds[4], "upsample 1x8x8x16");
  EXPECT_EQ(kinds[5], "concat 1x8x8x24");
  EXPECT_EQ(kinds[6], "gated 1x8x8x12");
  EXPECT_EQ(kinds[8], "slice 1x3x8x12");
  for (const auto& [line, message] : {std::pair{"concat a axis=1", "all extents but that of axis 1 must be equal"},
                                      {"slice 5 4 axis=0", "takes elements 5 to 8 of axis 0"},
                                      {"slice 0 1 axis=3", "has no axis 3"},
                                      {"glu softmax", "'softmax' is no activation"},
                                      {"upsample 0", "must be at least 1"},
                                      {"upsample 2 mode=cubic", "mode=cubic must be one of nearest, linear"},
                                      {"scale init=x", "init=x is not a number"}}) {
    spec.layers = {"conv 8 3 pad=same as=a", "maxpool 2", line, "globalpool", "linear outputs"};
    expect_error(Exit::config, message, [&] { images(spec, 8); });
  }
}

std::string refusal(const std::vector<std::string>& lines, bool tokens = false) {
  ModelSpec spec = spec_of("layers", "auto", 10);
  spec.layers = lines;
  spec.tokens = tokens;
  try {
    tokens ? build_model(spec, {1, {8}, DType::u8, {}, true}, DType::f32, Mode::train) : images(spec, 8);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    return e.what();
  }
  return "accepted";
}

TEST(WrittenNetworks, WhatCannotBeTrainedIsRefused) {
  const auto expect = [](const std::vector<std::string>& lines, const char* words, bool tokens = false) {
    const std::string message = refusal(lines, tokens);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect({"linear 4 as=unused", "linear outputs from=input"}, "no layer reads the result of 'unused'");
  expect({"residual {", "conv 3 3 pad=same as=lost", "relu from=input", "}", "globalpool", "linear outputs"},
         "no layer reads the result of 'lost'");
  expect({"linear outputs as=fc weights=fc"}, "no other layer 'fc' has weights");
  expect({"conv 8 1", "positions class_token=on as=p", "linear 65 axis=last bias=off weights=p", "linear outputs"},
         "no other layer 'p' has weights");
  expect({"concat input", "linear outputs"}, "the samples are tokens", true);
  expect({"residual {", "}", "embedding 4", "linear outputs"}, "the samples are tokens", true);
  const auto attend = [&](const std::string& options, const char* words, const std::string& documents) {
    expect({documents, "embedding 4 from=input as=e", "linear 12 axis=last", "attention " + options, "linear outputs"},
           words, true);
  };
  attend("causal dropout=1", "'1' is not a probability", "documents separator=9 as=d");
  attend("causal documents=e", "documents= must name a line `documents separator=TOKEN`", "documents separator=9 as=d");
  attend("documents=d", "attention within documents must be causal. add `causal`", "documents separator=9 as=d");
  attend("causal documents=d", "the separator 10 is outside of the vocabulary (the data has tokens up to 9)",
         "documents separator=10 as=d");
  attend("causal documents=d", "needs separator=TOKEN", "documents as=d");
  expect({"documents separator=9", "linear outputs"}, "`documents` is for `attention documents=NAME` only", true);
  expect({"documents separator=9", "linear outputs"}, "only with data.sample = tokens");
  expect({"repeat 2147483647 {", "}", "linear outputs"}, "the block has no lines");
}

TEST(WrittenNetworks, WeightsAreSharedWithinABlock) {
  ModelSpec spec = spec_of("layers", "auto", 10);
  spec.layers = {"linear 16", "repeat 2 as=b {", "linear 16 as=fc", "linear 16 weights=fc", "}", "linear outputs"};
  const Graph g = images(spec, 8);
  std::vector<std::string> names;
  for (const Parameter& p : g.parameters) names.push_back(p.name);
  EXPECT_EQ(std::ranges::count_if(names, [](const auto& n) { return n.ends_with(".weight"); }), 4) << "six layers";
  const auto lines = describe_function(g);
  EXPECT_TRUE(lines[3].ends_with("weights=b.0.fc.weight")) << lines[3];
}

}  // namespace written_networks_test
}  // namespace millrace
