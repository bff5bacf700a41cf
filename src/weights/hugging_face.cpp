#include "millrace/weights/hugging_face.hpp"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

using nlohmann::json;

// What the weights do not show of a decoder.
struct Decoder {
  std::int64_t blocks = 0, width = 0, heads = 0, key_heads = 0, feed_forward = 0;
  double epsilon = 0, rotary_base = 0;
};

Decoder decoder_of(const Graph& graph, const std::string& network) {
  Decoder out;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (const auto* attention = std::get_if<AttentionSpec>(&node.spec)) {
      ++out.blocks;
      out.heads = attention->heads;
      out.key_heads = attention->key_heads;
      out.width = attention->heads * attention->head_size();
    } else if (const auto* rotary = std::get_if<RotarySpec>(&node.spec)) {
      out.rotary_base = double(rotary->theta);
    } else if (const auto* norm = std::get_if<LayerNormSpec>(&node.spec)) {
      out.epsilon = double(norm->epsilon);
    } else if (const auto* linear = std::get_if<LinearSpec>(&node.spec)) {
      if (node.name.ends_with("mlp.c_fc")) out.feed_forward = linear->out_features;
      if (node.name.ends_with("mlp.gate_up_proj")) out.feed_forward = linear->out_features / 2;
    }
  }
  if (network == "gpt2") out.rotary_base = 0;
  return out;
}

Decoder decoder_of(const json& c, const std::string& network) {
  Decoder out;
  if (network == "gpt2") {
    out.blocks = c.at("n_layer");
    out.width = c.at("n_embd");
    out.heads = out.key_heads = c.at("n_head");
    const auto inner = c.find("n_inner");
    out.feed_forward = inner == c.end() || inner->is_null() ? 4 * out.width : inner->get<std::int64_t>();
    out.epsilon = c.value("layer_norm_epsilon", 1e-5);
    return out;
  }
  out.blocks = c.at("num_hidden_layers");
  out.width = c.at("hidden_size");
  out.heads = c.at("num_attention_heads");
  out.key_heads = c.value("num_key_value_heads", out.heads);
  out.feed_forward = c.at("intermediate_size");
  out.epsilon = c.value("rms_norm_eps", 1e-6);
  out.rotary_base = c.value("rope_theta", 10000.0);
  if (const auto rope = c.find("rope_parameters"); rope != c.end() && rope->is_object())  // since transformers 5
    out.rotary_base = rope->value("rope_theta", out.rotary_base);
  return out;
}

bool has_scaled_rotation(const json& c) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = c.find(key);
    if (found == c.end() || !found->is_object()) continue;
    if (found->value("rope_type", found->value("type", "default")) != "default") return true;
  }
  return false;
}

// What millrace's blocks cannot compute.
std::string unsupported(const json& c, const std::string& network) {
  const std::string activation =
      c.value(network == "gpt2" ? "activation_function" : "hidden_act", network == "gpt2" ? "gelu_new" : "silu");
  if (network == "gpt2" && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    return fmt::format("its activation is {}, not gelu_new", activation);
  if (network == "llama" && activation != "silu") return fmt::format("its activation is {}, not silu", activation);
  if (network == "llama" && has_scaled_rotation(c)) return "its rotary positions are scaled (rope_scaling)";
  if (network == "llama" && (c.value("attention_bias", false) || c.value("mlp_bias", false)))
    return "its linear layers have biases";
  if (network == "gpt2" && !c.value("scale_attn_weights", true)) return "it does not scale attention";
  if (network == "gpt2" && c.value("scale_attn_by_inverse_layer_idx", false))
    return "it scales attention by the number of the layer";
  return "";
}

std::string keys_of(const Decoder& d, const std::string& network) {
  std::string out = fmt::format("model.blocks = {}, model.width = {}, model.heads = {}", d.blocks, d.width, d.heads);
  if (network == "llama") out += fmt::format(", model.key_heads = {}", d.key_heads);
  out += fmt::format(", model.feed_forward = {}", d.feed_forward);
  if (network == "llama") out += fmt::format(", model.rotary_base = {}", d.rotary_base);
  return out;
}

}  // namespace

void require_same_network(const std::filesystem::path& path, const Graph& graph, const std::string& network) {
  if (network != "gpt2" && network != "llama") return;
  try {
    constexpr std::uint64_t most = 4 << 20;
    const json config = json::parse(read_file(path, most));
    const std::string type = config.value("model_type", "");
    if (type != network)
      fail(Exit::config, "model.weights: {} describes a network of the type '{}', but model.name is {}", path.string(),
           type, network);
    if (const std::string why = unsupported(config, network); !why.empty())
      fail(Exit::config,
           "model.weights: {}: {}, which model.name = {} cannot compute. such weights cannot be loaded yet",
           path.string(), why, network);
    const Decoder theirs = decoder_of(config, network), ours = decoder_of(graph, network);
    if (keys_of(theirs, network) != keys_of(ours, network))
      fail(Exit::config, "model.weights: {} describes another network. set {}", path.string(),
           keys_of(theirs, network));
    if (std::abs(theirs.epsilon - ours.epsilon) > 1e-3 * theirs.epsilon)
      fail(Exit::config,
           "model.weights: the norms of {} have the epsilon {:g}, those of model.name = {} have {:g}. such weights "
           "cannot be loaded yet",
           path.string(), theirs.epsilon, network, ours.epsilon);
  } catch (const json::exception& e) {
    fail(Exit::data, "{} is not a config.json of Hugging Face transformers ({})", path.string(), e.what());
  }
}

}  // namespace millrace
