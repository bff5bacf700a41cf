// The keys of [model], [train] and [optim].
#include "config/key_groups.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/config/parameter_group.hpp"
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
  k.push_back(number_key(MR_FIELD(model.drop_path), fraction(),
                         "vit, convnext: probability with which the last block is left out for a sample in training; "
                         "it rises linearly from 0 in the first block"));
}

void add_learning_rate(Keys& k) {
  k.push_back(number_key(MR_FIELD(optim.lr), at_least(0), "learning rate after the warm-up"));
  k.push_back(number_key(MR_FIELD(optim.lr_batch), at_least(0),
                         "above 0: optim.lr is meant for this global batch, and is multiplied by train.global_batch / "
                         "optim.lr_batch (linear scaling rule)"));
  k.push_back(choice_key(
      MR_FIELD(optim.schedule),
      Choices<LrSchedule>{{"constant", LrSchedule::constant},
                          {"step", LrSchedule::step},
                          {"cosine", LrSchedule::cosine},
                          {"linear", LrSchedule::linear},
                          {"polynomial", LrSchedule::polynomial},
                          {"wsd", LrSchedule::wsd},
                          {"one_cycle", LrSchedule::one_cycle},
                          {"plateau", LrSchedule::plateau}},
      "how the learning rate changes after the warm-up. wsd (warm-up, stable, decay; Hu et al. "
      "2024): constant until the decay over the last steps; one_cycle (Smith and Topin 2018): rises "
      "from optim.lr / 25 to optim.lr and falls to optim.lr / 250000, both along a cosine, without "
      "warm-up. It is PyTorch's OneCycleLR, but the momentum stays constant; plateau: multiplied by optim.gamma when "
      "evaluations have not improved the metric of checkpoint.best by 0.01% (ReduceLROnPlateau)"));
  k.push_back(number_key(MR_FIELD(optim.warmup), at_least(0),
                         "epochs over which the learning rate rises linearly to its full value"));
  k.push_back(number_key(MR_FIELD(optim.min_lr), at_least(0),
                         "cosine, linear, polynomial, wsd: learning rate at the end; plateau: lowest learning rate"));
  k.push_back(numbers_key(MR_FIELD(optim.milestones), at_least(0),
                          "step: epochs at which the learning rate is multiplied by optim.gamma"));
  k.push_back(number_key(MR_FIELD(optim.gamma), above(0),
                         "step: factor on the learning rate at each milestone; plateau: at each reduction"));
  k.push_back(number_key(MR_FIELD(optim.patience), at_least(0),
                         "plateau: number of evaluations in a row without improvement that change nothing; the next "
                         "one reduces the learning rate"));
  k.push_back(number_key(MR_FIELD(optim.power), above(0),
                         "polynomial: the learning rate falls like (1 - t)^power, where t goes from 0 to 1 after the "
                         "warm-up"));
  k.push_back(
      number_key(MR_FIELD(optim.decay), Range{.low = 0, .high = 1, .exclusive_low = true},
                 "wsd: fraction of all steps, at the end, over which the learning rate decays to optim.min_lr"));
  k.push_back(choice_key(
      MR_FIELD(optim.decay_shape),
      Choices<DecayShape>{{"linear", DecayShape::linear}, {"cosine", DecayShape::cosine}, {"sqrt", DecayShape::sqrt}},
      "wsd: how the learning rate falls during the decay. t goes from 0 to 1. linear: 1 - t; "
      "cosine: (1 + cos(pi t)) / 2; sqrt: 1 - sqrt(t)"));
  k.push_back(number_key(MR_FIELD(optim.pct_start), fraction(),
                         "one_cycle: fraction of all steps over which the learning rate rises"));
}

// The text of optim.group is parsed where it is used, but refused here.
void refuse_invalid_groups(Key& key) {
  key.set = [plain = key.set](RunConfig& c, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) ParameterGroup::parse(line);
    plain(c, lines);
  };
}

void add_update_rule(Keys& k) {
  k.push_back(number_key(MR_FIELD(optim.momentum), fraction(), "sgd, lars: momentum coefficient"));
  k.push_back(switch_key(MR_FIELD(optim.nesterov), "sgd, lars: Nesterov momentum"));
  k.push_back(number_key(MR_FIELD(optim.weight_decay), at_least(0),
                         "weight decay; not applied to biases and normalisation layers. adamw and muon decouple it "
                         "from the gradient. lars and lamb adapt the step "
                         "only of the parameters that decay"));
  k.push_back(
      strings_key(MR_FIELD(optim.group), Key::Many::lines, "PATTERN key=value...",
                  "what differs for the parameters whose name matches a shell pattern; can be given several "
                  "times. lr=: factor on the learning rate; weight_decay=: in place of optim.weight_decay, also "
                  "for biases and norms; muon=off: with optim.name = muon, the parameter is updated as by adamw; "
                  "freeze=on: the parameter is not changed at all, and its gradient "
                  "counts neither for optim.clip nor as an overflow (norms still track running statistics). If "
                  "several patterns match, the last that gives a property counts. Names are as in checkpoints"));
  refuse_invalid_groups(k.back());
  k.push_back(number_key(MR_FIELD(optim.beta1), fraction(),
                         "adamw, lamb, and muon where it works like adamw: decay rate of the first moment"));
  k.push_back(number_key(MR_FIELD(optim.beta2), fraction(), "the same: decay rate of the second moment"));
  k.push_back(
      number_key(MR_FIELD(optim.epsilon), above(0),
                 "adamw, lamb, muon: added to the square root of the second moment; lars: added to the divisor of "
                 "the trust ratio"));
  k.push_back(number_key(MR_FIELD(optim.trust_coefficient), above(0),
                         "lars: trust coefficient, the size of a step relative to the norm of the weight matrix, "
                         "before the learning rate"));
  k.push_back(number_key(MR_FIELD(optim.muon_momentum), fraction(), "muon: momentum coefficient of the matrices"));
  k.push_back(switch_key(MR_FIELD(optim.muon_nesterov), "muon: Nesterov momentum of the matrices"));
  using MuonScale = OptimizerSpec::MuonScale;
  k.push_back(choice_key(MR_FIELD(optim.muon_scale),
                         Choices<MuonScale>{{"match_rms_adamw", MuonScale::match_rms_adamw},
                                            {"original", MuonScale::original},
                                            {"spectral_unclamped", MuonScale::spectral_unclamped}},
                         "muon: factor on the learning rate of a matrix of R outputs and C inputs. match_rms_adamw: "
                         "0.2 sqrt(max(R, C)), so that the steps are as large as those of adamw and optim.lr suits "
                         "both; original: sqrt(max(1, R / C)); spectral_unclamped: sqrt(R / C)"));
  k.push_back(number_key(MR_FIELD(optim.muon_steps), between(1, 99), "muon: Newton-Schulz steps of a matrix"));
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
                                            {"layers", ModelName::layers}},
                         "kind of network; layers: the network is written out under model.layers"));
  add_resnet(k);
  add_mlp(k);
  add_transformers(k);
  k.push_back(strings_key(MR_FIELD(model.layers), Key::Many::lines, "a layer",
                          "layers: one layer of the network each time the key is given, in order"));
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
  k.push_back(
      number_key(MR_FIELD(model.fusion), between(0, 3),
                 "how far operations are fused. 0: not at all; 1: normalisation and linear layers with the operations "
                 "that follow them, and the sum of a tensor's gradients into the layers that read it; 2: also the sums "
                 "of batch normalisation into convolutions, and gradients of relu "
                 "and gelu_tanh into the next linear layer, where possible (millrace plan says where not); 3: also "
                 "normalisation with relu into the next convolution, so that its result is not stored; auto: 1",
                 -1));
}

void add_train_keys(Keys& k) {
  k.push_back(number_key(MR_FIELD(train.epochs), at_least(0), "passes over the training data"));
  k.push_back(number_key(MR_FIELD(train.steps), at_least(0),
                         "above 0: length of the run in optimizer steps, in place of train.epochs. The learning rate "
                         "schedule ends there"));
  k.push_back(number_key(MR_FIELD(train.global_batch), at_least(1),
                         "samples of one optimizer step, over all ranks. A sample of tokens is a window"));
  k.push_back(number_key(MR_FIELD(train.micro_batch), at_least(1),
                         "most samples of one forward and backward pass on a rank. The global batch is divided into "
                         "micro-batches; a rank with several of them accumulates their gradients. Smaller values need "
                         "less memory; auto: global_batch / ranks, or an eighth of that unless train.balance = even",
                         auto_is_zero));
  k.push_back(choice_key(
      MR_FIELD(train.recompute),
      Choices<Recompute>{{"off", Recompute::off}, {"selective", Recompute::selective}, {"full", Recompute::full}},
      "what the backward pass computes again in place of keeping it in memory. off: nothing; selective: results of "
      "norms, activations and gates, which costs little time; full: all but a few results of the network, which costs "
      "up to a second forward pass. The losses stay the same, with selective within rounding (millrace plan shows the "
      "memory)"));
  k.push_back(size_key(MR_FIELD(train.logits_memory), at_least(0),
                       "if the logits of a micro-batch need more memory than this, the last linear layer and the "
                       "cross-entropy are computed in chunks of samples, each with at most so many bytes of logits; "
                       "0: never"));
  k.push_back(text_key(MR_FIELD(train.balance), "even, auto or file",
                       "how micro-batches are split over the ranks. even: equally; auto: slower ranks get fewer, by "
                       "their speed measured during the run; the shares.jsonl of a run: exactly as in that run"));
  k.push_back(
      switch_key(MR_FIELD(train.evaluate),
                 "evaluate on data.valid after every epoch, at the end, and by train.evaluate_every; off: never"));
  k.push_back(number_key(MR_FIELD(train.evaluate_every), at_least(0),
                         "above 0: evaluate also after every so many optimizer steps of the run"));
  k.push_back(number_key(MR_FIELD(train.patience), at_least(0),
                         "above 0: end the run, with exit code 0, when so many evaluations in a row have not improved "
                         "the metric of checkpoint.best. A resumed run continues the count"));
  k.push_back(number_key(MR_FIELD(train.mixup), at_least(0),
                         "above 0: mix each sample with the next one of its micro-batch, and their losses, in shares "
                         "drawn from the distribution Beta(mixup, mixup). For cross_entropy with one label a sample"));
  k.push_back(number_key(MR_FIELD(train.cutmix), at_least(0),
                         "above 0: replace a box of each image by that of the next image of its micro-batch, and mix "
                         "their losses by the areas. The area is drawn from Beta(cutmix, cutmix). With train.mixup, "
                         "one of them is chosen at random for each micro-batch"));
}

void add_optim_keys(Keys& k) {
  k.push_back(choice_key(MR_FIELD(optim.name),
                         Choices<OptimizerName>{{"sgd", OptimizerName::sgd},
                                                {"adamw", OptimizerName::adamw},
                                                {"lars", OptimizerName::lars},
                                                {"lamb", OptimizerName::lamb},
                                                {"muon", OptimizerName::muon}},
                         "optimizer. adamw, lamb and muon keep two moments, which takes 4 bytes more for each "
                         "parameter than sgd and lars. lars and lamb are variants of SGD and Adam for large batches: "
                         "the step of a weight matrix is proportional to its norm. muon updates the weights of linear "
                         "layers and convolutions by nearly orthogonal matrices (Jordan et al. 2024), and all other "
                         "parameters like adamw"));
  add_learning_rate(k);
  add_update_rule(k);
  k.push_back(number_key(MR_FIELD(optim.ema), fraction(),
                         "above 0: keep an exponential moving average of the weights, which starts with the initial "
                         "weights; this is its decay in each step (0.999). Evaluations, also those of millrace eval, "
                         "use the averages, with the running statistics of the training. Takes 4 bytes for each "
                         "parameter"));
  k.push_back(number_key(MR_FIELD(optim.zero), Range{.low = 0, .high = 1},
                         "ZeRO stage; 1: each rank keeps the moments of its part of the parameters only, and in 16 "
                         "bits the float32 weights. It updates that part, and gathers the other parts during the next "
                         "forward pass. On a CPU the result is bitwise the same"));
  k.push_back(
      number_key(MR_FIELD(optim.clip), at_least(0), "above 0: scale gradients down to at most this global norm"));
  k.push_back(number_key(MR_FIELD(optim.loss_scale), above(0),
                         "fp16, also of comm.grad_dtype: initial value of the dynamic loss scale"));
  k.push_back(number_key(MR_FIELD(optim.scale_interval), at_least(1),
                         "fp16: steps without overflow after which the loss scale is doubled"));
}

}  // namespace millrace
