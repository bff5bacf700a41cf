// The keys of [model].
#include "config/key_groups.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/ops/op.hpp"

namespace millrace {
namespace {

constexpr double max_width = 2147483647;  // the largest number of channels or features that the backends accept

void add_resnet(Keys& k) {
  k.push_back(number_key(MR_FIELD(model.depth), between(1, 2000),
                         "resnet: number of layers. CIFAR style: 6n+2 (8, 20, 32, 44, 56, 110). ImageNet style: 18, "
                         "34, 50, 101"));
  k.push_back(choice_key(MR_FIELD(model.stem),
                         Choices<ResNetStem>{{"auto", ResNetStem::automatic},
                                             {"cifar", ResNetStem::cifar},
                                             {"pool", ResNetStem::pool},
                                             {"imagenet", ResNetStem::imagenet}},
                         "resnet: first layers. cifar: 3x3 convolution; pool: the same and max-pooling by 2; imagenet: "
                         "7x7 convolution with stride 2 and max-pooling; auto: by model.depth and image size"));
  k.push_back(number_key(MR_FIELD(model.width), between(1, max_width),
                         "resnet, convnext, unet: channels of the first stage; cosmoflow: of the first layer; gpt2, "
                         "llama, vit: of a token. auto: 16 for a resnet in CIFAR style, 64 in ImageNet style; 64 for a "
                         "unet, 32 with volumes; 32 for cosmoflow; of the others, as model.size has it",
                         auto_is_zero));
}

void add_mlp(Keys& k) {
  k.push_back(numbers_key(MR_FIELD(model.hidden), between(1, max_width), "mlp: widths of the hidden layers"));
  std::vector<const char*> names;
  for (const ActivationTraits& a : activations)
    if (a.kind != Activation::none) names.push_back(a.name);
  k.push_back(word_key(MR_FIELD(model.activation), names,
                       "mlp: activation function after each hidden layer. gelu_tanh is the tanh approximation of gelu, "
                       "which cuBLAS can fuse into its matrix products"));
  k.push_back(
      number_key(MR_FIELD(model.dropout), fraction(),
                 "mlp, gpt2, vit, cosmoflow, hyperspectral: probability with which an activation is set to zero in "
                 "training"));
  k.push_back(number_key(MR_FIELD(model.attention_dropout), fraction(),
                         "gpt2, llama, vit: probability with which an attention weight is set to zero in training"));
}

// -1 is written "none".
Key separator_key() {
  Key key = number_key(MR_FIELD(model.separator), between(0, max_width),
                       "gpt2, llama: the token that ends each document. Tokens then attend to those of their own "
                       "document only. none: to all earlier tokens of the window");
  key.value_format = "whole number or none";
  key.set = [store = key.set](RunConfig& c, const std::vector<std::string>& words) {
    if (words.size() == 1 && words[0] == "none")
      c.model.separator = -1;
    else
      store(c, words);
  };
  key.get = [get = key.get](const RunConfig& c) {
    return c.model.separator < 0 ? std::vector<std::string>{"none"} : get(c);
  };
  return key;
}

void add_transformers(Keys& k) {
  k.push_back(text_key(MR_FIELD(model.size), "name or auto",
                       "gpt2: tiny, 124M, 350M, 774M or 1558M; llama: tiny, 1.1B, 7B or 8B; vit: tiny, small or base; "
                       "convnext: tiny; auto: tiny"));
  k.push_back(number_key(MR_FIELD(model.blocks), between(1, 2000),
                         "gpt2, llama, vit: number of blocks; unet: number of poolings. auto: as model.size has it; 4 "
                         "for a unet, 3 with volumes",
                         auto_is_zero));
  k.push_back(number_key(MR_FIELD(model.heads), between(1, max_width),
                         "gpt2, llama, vit: heads of the attention; auto: as model.size has it", auto_is_zero));
  k.push_back(number_key(MR_FIELD(model.key_heads), between(1, max_width),
                         "llama: heads of keys and values, which groups of heads share; auto: as model.size has it",
                         auto_is_zero));
  k.push_back(number_key(MR_FIELD(model.feed_forward), between(1, max_width),
                         "gpt2, llama, vit: channels inside the feed-forward part of a block; auto: as model.size has "
                         "it, in proportion to model.width",
                         auto_is_zero));
  k.push_back(number_key(MR_FIELD(model.patch), between(1, max_width),
                         "vit, convnext: side in pixels of the patches that the first layer divides an image into; "
                         "auto: 16 for vit, 4 for convnext",
                         auto_is_zero));
  k.push_back(
      choice_key(MR_FIELD(model.upsample),
                 Choices<Upsampling>{{"linear", Upsampling::linear}, {"transposed", Upsampling::transposed}},
                 "unet: how it doubles its extents. linear: interpolation; transposed: a learned convolution, with "
                 "twice the channels at the bottom, as the article has it"));
  k.push_back(number_key(MR_FIELD(model.rotary_base), above(1),
                         "llama: base of the frequencies of the rotary positions (500000 for Llama 3)"));
  k.push_back(separator_key());
  k.push_back(number_key(MR_FIELD(model.drop_path), fraction(),
                         "vit, convnext: probability with which the last block is left out for a sample in training; "
                         "it rises linearly from 0 in the first block"));
}

void add_exported(Keys& k) {
  k.push_back(
      text_key(MR_FIELD(model.file), "path",
               "pt2: the network, as torch.export.save of PyTorch 2.9 or newer writes it. Every rank reads it"));
  k.push_back(choice_key(MR_FIELD(model.init),
                         Choices<ModelInit>{{"archive", ModelInit::archive}, {"fresh", ModelInit::fresh}},
                         "pt2: the weights that a new run begins with. archive: those of model.file; fresh: random "
                         "ones, by run.seed. A run that resumes has those of its checkpoint"));
}

Key class_weights_key() {
  Key key = strings_key(MR_FIELD(model.class_weights), Key::Many::words, "numbers or balanced",
                        "cross_entropy: weight of each class in the loss, as weight of PyTorch's CrossEntropyLoss. "
                        "balanced: labels / (classes x labels of the class), counted in data.train at the start");
  key.set = [store = key.set](RunConfig& c, const std::vector<std::string>& words) {
    const bool balanced = words.size() == 1 && words[0] == balanced_class_weights;
    for (const std::string& word : words)
      if (!balanced) at_least(0).check(parse_number<double>(word), word);
    store(c, words);
  };
  return key;
}

}  // namespace

void add_model_keys(Keys& k) {
  k.push_back(choice_key(MR_FIELD(model.name),
                         Choices<ModelName>{{"mlp", ModelName::mlp},
                                            {"resnet", ModelName::resnet},
                                            {"gpt2", ModelName::gpt2},
                                            {"llama", ModelName::llama},
                                            {"vit", ModelName::vit},
                                            {"convnext", ModelName::convnext},
                                            {"cosmoflow", ModelName::cosmoflow},
                                            {"hyperspectral", ModelName::hyperspectral},
                                            {"unet", ModelName::unet},
                                            {"layers", ModelName::layers},
                                            {"pt2", ModelName::pt2}},
                         "kind of network; layers: the network is written out under model.layers; pt2: PyTorch has "
                         "exported it to model.file"));
  add_resnet(k);
  add_mlp(k);
  add_transformers(k);
  k.push_back(text_key(MR_FIELD(model.weights), "path",
                       "weights that a new run begins with: a .safetensors file (PyTorch's names), a checkpoint of "
                       "millrace (.h5), a network of torch.export (.pt2), or a folder of Hugging Face with config.json "
                       "(gpt2, llama). A run that resumes does not read them; empty: fresh values"));
  k.push_back(strings_key(MR_FIELD(model.weights_skip), Key::Many::words, "patterns",
                          "shell patterns of the parameters that model.weights does not set, such as fc.* for another "
                          "number of classes. All others must be in the file, with their shapes"));
  k.push_back(strings_key(MR_FIELD(model.layers), Key::Many::lines, "a layer",
                          "layers: one layer of the network each time the key is given, in order, such as `conv 64 3 "
                          "stride=2 as=first`; all of them are in docs/reference/networks.md"));
  add_exported(k);
  k.push_back(
      choice_key(MR_FIELD(model.loss),
                 Choices<Loss>{{"auto", Loss::automatic},
                               {"cross_entropy", Loss::cross_entropy},
                               {"mse", Loss::mse},
                               {"mae", Loss::mae},
                               {"smooth_l1", Loss::smooth_l1},
                               {"binary_cross_entropy", Loss::binary_cross_entropy}},
                 "loss function; auto: cross_entropy for class labels, mse for floating-point targets. mae: mean "
                 "absolute error; smooth_l1: squares of small differences, absolute values of large ones; "
                 "binary_cross_entropy: several labels of a sample, each 0 or 1, one logit for each"));
  k.push_back(number_key(MR_FIELD(model.beta), above(0),
                         "smooth_l1: differences below it are small, as beta of PyTorch's SmoothL1Loss"));
  k.push_back(number_key(MR_FIELD(model.label_smoothing), fraction(),
                         "cross_entropy: part of the target probability that is spread over all classes"));
  k.push_back(class_weights_key());
  k.push_back(number_key(MR_FIELD(model.dice), at_least(0),
                         "cross_entropy with a label at each position: adds so many times the Dice loss of each "
                         "sample, from the softmax probabilities, over all classes"));
  k.push_back(switch_key(MR_FIELD(model.sync_batch_norm),
                         "statistics of batch normalisation over the micro-batches of all ranks, as PyTorch's "
                         "SyncBatchNorm. off: each rank normalises its micro-batches by themselves"));
  k.push_back(number_key(
      MR_FIELD(model.fusion), between(0, 3),
      "how far operations are fused. 0: not at all; 1: normalisation and linear layers with the operations after them, "
      "the sum of a tensor's gradients into the layers that read it, and without positions that nothing reads; 2: also "
      "sums of batch normalisation into convolutions, and gradients of relu and gelu_tanh into the next linear layer, "
      "where possible (millrace plan says where not); 3: also normalisation with relu or relu6 into the convolutions "
      "around it, without storing its result; auto: 1, on the CPU 3 for 1x1 and depthwise layers that memory bounds",
      -1));
}

}  // namespace millrace
