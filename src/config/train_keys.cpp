// The keys of [train] and [optim].
#include "config/key_groups.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/config/parameter_group.hpp"

namespace millrace {
namespace {

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
  k.push_back(number_key(MR_FIELD(optim.beta2), fraction(),
                         "adamw, lamb, and muon where it works like adamw: decay rate of the second moment"));
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

}  // namespace

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
                       "0: never. Not with train.mixup and train.cutmix"));
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
  k.push_back(strings_key(MR_FIELD(train.freeze), Key::Many::words, "patterns",
                          "shell patterns of the parameters that training does not change, such as layer1.*. As "
                          "optim.group with freeze=on, whose patterns are applied after these"));
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
  k.push_back(
      number_key(MR_FIELD(optim.zero), Range{.low = 0, .high = 1},
                 "ZeRO stage; 1: each rank keeps the moments of its part of the parameters only, and in 16 "
                 "bits the float32 weights. It updates that part, and gathers the other parts during the next "
                 "forward pass. On a CPU the result is bitwise the same. auto: 1 for adamw and muon if all ranks "
                 "are on the CPU of one host and the parameters take at least 8 MiB in float32, else 0",
                 OptimOptions::automatic_zero));
  k.push_back(
      number_key(MR_FIELD(optim.clip), at_least(0), "above 0: scale gradients down to at most this global norm"));
  k.push_back(number_key(MR_FIELD(optim.loss_scale), above(0),
                         "fp16, also of comm.grad_dtype: initial value of the dynamic loss scale"));
  k.push_back(number_key(MR_FIELD(optim.scale_interval), at_least(1),
                         "fp16: steps without overflow after which the loss scale is doubled"));
}

}  // namespace millrace
