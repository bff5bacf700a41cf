// Networks of the zoo that are written in the text form: GPT-2 (Radford et al. 2019), Llama (Touvron et al. 2023), the
// vision transformer (Dosovitskiy et al. 2021), ConvNeXt (Liu et al. 2022) and U-Net (Ronneberger et al. 2015). Initial
// values are those of the papers, for U-Net PyTorch's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "millrace/model/zoo.hpp"
#include "model/volume_networks.hpp"

namespace millrace {
namespace {

struct Size {
  const char* name;
  std::int64_t blocks, width, heads, key_heads, feed_forward;
};
constexpr Size gpt2_sizes[] = {{"tiny", 4, 128, 4, 4, 512},
                               {"124M", 12, 768, 12, 12, 3072},
                               {"350M", 24, 1024, 16, 16, 4096},
                               {"774M", 36, 1280, 20, 20, 5120},
                               {"1558M", 48, 1600, 25, 25, 6400}};
// 1.1B: TinyLlama. 7B: the first Llama and Llama 2. 8B: Llama 3.
constexpr Size llama_sizes[] = {{"tiny", 4, 128, 4, 2, 352},
                                {"1.1B", 22, 2048, 32, 4, 5632},
                                {"7B", 32, 4096, 32, 32, 11008},
                                {"8B", 32, 4096, 32, 8, 14336}};
constexpr Size vit_sizes[] = {
    {"tiny", 12, 192, 3, 3, 768}, {"small", 12, 384, 6, 6, 1536}, {"base", 12, 768, 12, 12, 3072}};

template <std::size_t n>
Size size_of(const Size (&sizes)[n], const ModelSpec& spec) {
  std::string names;
  for (Size size : sizes) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", size.name);
    if (spec.size != "auto" && spec.size != size.name) continue;
    const auto replace = [](std::int64_t& value, std::int64_t given) { value = given > 0 ? given : value; };
    const bool as_many_keys = size.key_heads == size.heads;
    const std::int64_t width = size.width;
    replace(size.blocks, spec.blocks);
    replace(size.width, spec.width);
    replace(size.heads, spec.heads);
    if (as_many_keys) size.key_heads = size.heads;
    replace(size.key_heads, spec.key_heads);
    size.feed_forward = size.feed_forward * size.width / width;
    replace(size.feed_forward, spec.feed_forward);
    if (size.width % size.heads != 0)
      fail(Exit::config, "model.heads: {} heads do not divide a width of {}. choose another number", size.heads,
           size.width);
    return size;
  }
  fail(Exit::config, "model.size: {} has no size '{}'. use one of {}", spec.name, spec.size, names);
}

class Lines {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    lines.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  void dropout(double probability) {
    if (probability > 0) add("dropout {}", probability);
  }
  std::vector<std::string> lines;
};

// The options of the attention of a language model or vision transformer.
std::string attention_options(const ModelSpec& spec) {
  std::string out;
  if (spec.attention_dropout > 0) out += fmt::format(" dropout={}", spec.attention_dropout);
  if (spec.separator >= 0) out += " documents=documents";
  return out;
}

// The embedding of the tokens, and where the documents begin.
void add_embedding(Lines& out, const ModelSpec& spec, std::int64_t width, const char* name) {
  if (spec.separator >= 0) out.add("documents separator={} as=documents", spec.separator);
  out.add("embedding {} std=0.02 from=input as={}", width, name);
}

// Weights have the deviation 0.02; those before a sum are smaller by the root of the number of sums.
std::vector<std::string> gpt2(const ModelSpec& spec) {
  const Size size = size_of(gpt2_sizes, spec);
  const double small = 0.02 / std::sqrt(2 * double(size.blocks));
  Lines out;
  add_embedding(out, spec, size.width, "wte");
  out.add("positions std=0.01 as=wpe");
  out.dropout(spec.dropout);
  out.add("repeat {} as=h {{", size.blocks);
  out.add("residual {{");
  out.add("layernorm as=ln_1");
  out.add("linear {} axis=last std=0.02 as=attn.c_attn", 3 * size.width);
  out.add("attention heads={} causal as=attn{}", size.heads, attention_options(spec));
  out.add("linear {} axis=last std={:.6g} as=attn.c_proj", size.width, small);
  out.dropout(spec.dropout);
  out.add("}}");
  out.add("residual {{");
  out.add("layernorm as=ln_2");
  out.add("linear {} axis=last std=0.02 as=mlp.c_fc", size.feed_forward);
  out.add("gelu_tanh");
  out.add("linear {} axis=last std={:.6g} as=mlp.c_proj", size.width, small);
  out.dropout(spec.dropout);
  out.add("}}");
  out.add("}}");
  out.add("layernorm as=ln_f");
  out.add("linear outputs axis=last bias=off weights=wte as=lm_head");
  return out.lines;
}

std::vector<std::string> llama(const ModelSpec& spec) {
  const Size size = size_of(llama_sizes, spec);
  const std::int64_t head = size.width / size.heads;
  const double small = 0.02 / std::sqrt(2 * double(size.blocks));
  Lines out;
  add_embedding(out, spec, size.width, "embed_tokens");
  out.add("repeat {} as=layers {{", size.blocks);
  out.add("residual {{");
  out.add("rmsnorm as=input_layernorm");
  out.add("linear {} axis=last bias=off std=0.02 as=self_attn.qkv_proj", (size.heads + 2 * size.key_heads) * head);
  out.add("attention heads={} key_heads={} causal rotary={} as=self_attn{}", size.heads, size.key_heads,
          spec.rotary_base, attention_options(spec));
  out.add("linear {} axis=last bias=off std={:.6g} as=self_attn.o_proj", size.width, small);
  out.add("}}");
  out.add("residual {{");
  out.add("rmsnorm as=post_attention_layernorm");
  out.add("linear {} axis=last bias=off std=0.02 as=mlp.gate_up_proj", 2 * size.feed_forward);
  out.add("glu silu");
  out.add("linear {} axis=last bias=off std={:.6g} as=mlp.down_proj", size.width, small);
  out.add("}}");
  out.add("}}");
  out.add("rmsnorm as=norm");
  out.add("linear outputs axis=last bias=off std=0.02 as=lm_head");
  return out.lines;
}

std::vector<std::string> vit(const ModelSpec& spec) {
  const Size size = size_of(vit_sizes, spec);
  Lines out;
  out.add("conv {0} {1} stride={1} bias=on as=patch_embed.proj", size.width, spec.patch > 0 ? spec.patch : 16);
  out.add("positions class_token=on std=0.02 as=pos_embed");
  out.dropout(spec.dropout);
  for (std::int64_t block = 0; block < size.blocks; ++block) {
    const std::string path = spec.drop_path_line(block, size.blocks);
    const std::string name = fmt::format("blocks.{}", block);
    out.add("residual {{");
    out.add("layernorm epsilon=1e-6 as={}.norm1", name);
    out.add("linear {} axis=last std=0.02 as={}.attn.qkv", 3 * size.width, name);
    out.add("attention heads={} as={}.attn{}", size.heads, name, attention_options(spec));
    out.add("linear {} axis=last std=0.02 as={}.attn.proj", size.width, name);
    if (!path.empty()) out.add("{}", path);
    out.add("}}");
    out.add("residual {{");
    out.add("layernorm epsilon=1e-6 as={}.norm2", name);
    out.add("linear {} axis=last std=0.02 as={}.mlp.fc1", size.feed_forward, name);
    out.add("gelu");
    out.add("linear {} axis=last std=0.02 as={}.mlp.fc2", size.width, name);
    if (!path.empty()) out.add("{}", path);
    out.add("}}");
  }
  out.add("slice 0 1 axis=0");  // the class token; the norm of the other positions would not be read
  out.add("layernorm epsilon=1e-6 as=norm");
  out.add("linear outputs std=0.02 as=head");
  return out.lines;
}

std::vector<std::string> convnext(const ModelSpec& spec, const Shape& input) {
  if (spec.size != "auto" && spec.size != "tiny")
    fail(Exit::config, "model.size: convnext has no size '{}'. use tiny", spec.size);
  constexpr std::int64_t stages[] = {3, 3, 9, 3}, blocks = 18;
  std::int64_t width = spec.width > 0 ? spec.width : 96, block = 0;
  const std::int64_t patch = spec.patch > 0 ? spec.patch : 4;
  for (int axis = 1; axis + 1 < input.rank; ++axis)
    if (input[axis] / 8 < patch)
      fail(
          Exit::config,
          "model.name: a convnext needs at least 8 patches of {} pixels (model.patch) along each side, but the samples "
          "are {}. lower model.patch, or store larger images",
          patch, input.str().substr(input.str().find('x') + 1));
  Lines out;
  out.add("conv {0} {1} stride={1} bias=on std=0.02 as=stem.0", width, patch);
  out.add("layernorm epsilon=1e-6 as=stem.1");
  for (std::size_t stage = 0; stage < std::size(stages); ++stage) {
    if (stage > 0) {
      width *= 2;
      out.add("layernorm epsilon=1e-6 as=stages.{}.downsample.0", stage);
      out.add("conv {} 2 stride=2 bias=on std=0.02 as=stages.{}.downsample.1", width, stage);
    }
    for (std::int64_t b = 0; b < stages[stage]; ++b, ++block) {
      out.add("residual as=stages.{}.blocks.{} {{", stage, b);
      out.add("conv {0} 7 pad=same groups={0} bias=on std=0.02 as=conv_dw", width);
      out.add("layernorm epsilon=1e-6 as=norm");
      out.add("linear {} axis=last std=0.02 as=mlp.fc1", 4 * width);
      out.add("gelu");
      out.add("linear {} axis=last std=0.02 as=mlp.fc2", width);
      out.add("scale init=1e-6 as=gamma");
      if (const std::string path = spec.drop_path_line(block, blocks); !path.empty()) out.add("{}", path);
      out.add("}}");
    }
  }
  out.add("globalpool");
  out.add("layernorm epsilon=1e-6 as=head.norm");
  out.add("linear outputs std=0.02 as=head.fc");
  return out.lines;
}

void double_conv(Lines& out, const std::string& name, std::int64_t middle, std::int64_t width) {
  out.add("conv {} 3 pad=same as={}.double_conv.0", middle, name);
  out.add("batchnorm as={}.double_conv.1", name);
  out.add("relu");
  out.add("conv {} 3 pad=same as={}.double_conv.3", width, name);
  out.add("batchnorm as={}.double_conv.4", name);
}

// With the names of the implementation that is used most, github.com/milesial/Pytorch-UNet with bilinear=True. Its
// norms, padding and linear interpolation differ from the article.
std::vector<std::string> unet(const ModelSpec& spec, const Shape& input) {
  const bool volume = input.spatial_rank() > 2;
  const std::int64_t levels = spec.blocks > 0 ? spec.blocks : volume ? 3 : 4;
  const std::int64_t width = spec.width > 0 ? spec.width : volume ? 32 : 64;
  for (int axis = 1; axis + 1 < input.rank; ++axis)
    if (levels > 30 || input[axis] % (std::int64_t(1) << levels) != 0)
      fail(Exit::config,
           "model.name: a unet halves its input {} times (model.blocks), but the samples are {}: {} is not a multiple "
           "of 2^{}. store padded samples, set data.subvolume, or lower model.blocks",
           levels, input.str().substr(input.str().find('x') + 1), input[axis], levels);
  Lines out;
  double_conv(out, "inc", width, width);
  out.add("relu as=x1");
  for (std::int64_t level = 1; level <= levels; ++level) {
    const std::int64_t wide = (width << level) / (level == levels && !spec.transposed ? 2 : 1);
    out.add("maxpool 2");
    double_conv(out, fmt::format("down{}.maxpool_conv.1", level), wide, wide);
    out.add("relu as=x{}", level + 1);
  }
  for (std::int64_t up = 1; up <= levels; ++up) {
    const std::int64_t middle = width << (levels - up);
    if (spec.transposed)
      out.add("convt {} 2 stride=2 bias=on as=up{}.up", middle, up);
    else
      out.add("upsample 2 mode=linear as=up{}.up", up);
    out.add("concat up{}.up from=x{}", up, levels + 1 - up);
    double_conv(out, fmt::format("up{}.conv", up), middle, up == levels || spec.transposed ? middle : middle / 2);
    out.add("relu");
  }
  out.add("conv outputs bias=on as=outc.conv");
  return out.lines;
}

}  // namespace

// The probability rises linearly with the depth (Huang et al. 2016), from 0 in the first block.
std::string ModelSpec::drop_path_line(std::int64_t block, std::int64_t count) const {
  if (!(drop_path > 0) || block == 0) return "";
  return fmt::format("droppath {}", float(drop_path * double(block) / double(count - 1)));
}

std::vector<std::string> written_layers(const ModelSpec& spec, const Shape& input) {
  if (spec.name == "layers") return spec.layers;
  if (spec.name == "gpt2") return gpt2(spec);
  if (spec.name == "llama") return llama(spec);
  if (spec.name == "vit") return vit(spec);
  if (spec.name == "cosmoflow") return cosmoflow_layers(spec);
  if (spec.name == "hyperspectral") return hyperspectral_layers(spec);
  if (spec.name == "unet") return unet(spec, input);
  return convnext(spec, input);
}

}  // namespace millrace
