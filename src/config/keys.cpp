#include "millrace/config/keys.hpp"

#include <mutex>
#include <set>

#include "millrace/base/log.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/config/schedule.hpp"

namespace millrace {
namespace {

void add_run(std::vector<Key>& k) {
  k.push_back(
      text_key(MR_FIELD(run.dir), "path",
               "folder of the run: configuration, metrics, checkpoints; when empty: runs/<name of the first file>"));
  k.push_back(choice_key(MR_FIELD(run.resume),
                         Choices<Resume>{{"auto", Resume::automatic}, {"must", Resume::must}, {"never", Resume::never}},
                         "continue from the newest whole checkpoint: if there is one, or fail without, or start anew "
                         "(removes the old ones)"));
  k.push_back(number_key(MR_FIELD(run.seed), at_least(0),
                         "seed of every random choice: initial weights, order, augmentation, dropout"));
  k.push_back(
      choice_key(MR_FIELD(run.device),
                 Choices<DeviceChoice>{
                     {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}},
                 "where to compute; auto takes CUDA when this build and this machine have it"));
  k.push_back(
      choice_key(MR_FIELD(run.precision),
                 Choices<Precision>{{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}},
                 "of activations and matrix products; master weights are fp32; fp16 scales the loss; slow on a CPU "
                 "without that type"));
  k.push_back(switch_key(MR_FIELD(run.deterministic),
                         "same ranks, threads and libraries give the same bits; may cost some speed on CUDA"));
  k.push_back(number_key(MR_FIELD(run.threads), at_least(1),
                         "compute threads of a rank; auto: its share of the host's cores", auto_is_zero));
  k.push_back(size_key(MR_FIELD(run.memory), Range{.low = 1, .high = double(1ull << 50)},
                       "most memory that a rank may plan with; auto: its share of what is free at the start", true));
  k.push_back(number_key(MR_FIELD(run.profile), Range{.low = 0, .high = 900},
                         "on GPUs: trace the kernels of so many steps of every thousand, for the account of busy time, "
                         "exposed communication and heaviest kernels; costs seconds at the start and slows traced "
                         "steps; 0: never"));
  k.push_back(duration_key(
      MR_FIELD(run.walltime), above(0),
      "checkpoint and exit 75 before this much time has passed; auto: SLURM_JOB_END_TIME, else never", auto_is_zero));
  k.push_back(duration_key(MR_FIELD(run.stop_margin), at_least(0), "how long before the end of the time to stop"));
}

void add_model(std::vector<Key>& k) {
  k.push_back(choice_key(
      MR_FIELD(model.name),
      Choices<ModelName>{{"mlp", ModelName::mlp}, {"resnet", ModelName::resnet}, {"layers", ModelName::layers}},
      "kind of network; layers: written out under model.layers"));
  k.push_back(number_key(MR_FIELD(model.depth), at_least(1),
                         "resnet: 6n+2 (8, 20, 32, 44, 56, 110: CIFAR style) or 18, 34, 50, 101 (ImageNet style)"));
  k.push_back(choice_key(MR_FIELD(model.stem),
                         Choices<ResNetStem>{{"auto", ResNetStem::automatic},
                                             {"cifar", ResNetStem::cifar},
                                             {"pool", ResNetStem::pool},
                                             {"imagenet", ResNetStem::imagenet}},
                         "resnet: 3x3, or 7x7 with stride 2 and pooling; auto: by depth and image size"));
  k.push_back(number_key(MR_FIELD(model.width), at_least(1),
                         "resnet: channels of the first stage; auto: 16 CIFAR style, 64 ImageNet style", auto_is_zero));
  k.push_back(numbers_key(MR_FIELD(model.hidden), at_least(1), "mlp: widths of the hidden layers"));
  k.push_back(word_key(MR_FIELD(model.activation), {"relu", "gelu", "gelu_tanh", "tanh"},
                       "mlp: function after each hidden layer; gelu_tanh: gelu by its approximation with tanh, which "
                       "cuBLAS puts into its products"));
  k.push_back(number_key(MR_FIELD(model.dropout), fraction(), "mlp: share of activations set to zero in training"));
  k.push_back(strings_key(MR_FIELD(model.layers), Key::Many::lines, "a layer",
                          "layers: the network, one layer each time the key is given"));
  k.push_back(
      choice_key(MR_FIELD(model.loss),
                 Choices<Loss>{{"auto", Loss::automatic}, {"cross_entropy", Loss::cross_entropy}, {"mse", Loss::mse}},
                 "auto: cross_entropy for class labels, mse for float targets"));
  k.push_back(number_key(MR_FIELD(model.label_smoothing), fraction(),
                         "cross_entropy: share of the probability spread over all classes"));
  k.push_back(
      number_key(MR_FIELD(model.fusion), at_least(0),
                 "how far operations are merged, 0: not; 1: norms and linear layers with what follows; 2: batch "
                 "norms' sums into convolutions, gradients of relu and gelu_tanh into the linear layer behind, where "
                 "they can (millrace plan says where not); auto: 1",
                 -1));
}

void add_train(std::vector<Key>& k) {
  k.push_back(number_key(MR_FIELD(train.epochs), at_least(0), "passes over the training data"));
  k.push_back(number_key(MR_FIELD(train.steps), at_least(0),
                         "above 0: stop after this many optimizer steps, whatever train.epochs says"));
  k.push_back(number_key(MR_FIELD(train.global_batch), at_least(1), "samples of one optimizer step, over all ranks"));
  k.push_back(number_key(MR_FIELD(train.micro_batch), at_least(1),
                         "samples computed at once by a rank: less memory when small; auto: global_batch / ranks, and "
                         "an eighth of that unless train.balance = even",
                         auto_is_zero));
  k.push_back(text_key(MR_FIELD(train.balance), "even, auto or file",
                       "micro-batches of a rank: even; auto: fewer for ranks that are slower, measured as the run "
                       "goes; the shares.jsonl of a run: as there, to the bit"));
  k.push_back(switch_key(MR_FIELD(train.evaluate), "evaluate on data.valid after every epoch"));
  k.push_back(hidden(
      number_key(MR_FIELD(train.test_force_overflow_at), at_least(-1), "tests: the step that pretends to overflow")));
  k.push_back(hidden(duration_key(MR_FIELD(train.test_compute), at_least(0),
                                  "tests: time that each sample takes longer, a third of it in the forward pass")));
}

void add_optim(std::vector<Key>& k) {
  k.push_back(choice_key(MR_FIELD(optim.name),
                         Choices<OptimizerName>{{"sgd", OptimizerName::sgd},
                                                {"adamw", OptimizerName::adamw},
                                                {"lars", OptimizerName::lars},
                                                {"lamb", OptimizerName::lamb}},
                         "optimizer; adamw and lamb keep two moments: 4 bytes a parameter more than sgd and lars; lars "
                         "and lamb are sgd and Adam for large batches: each matrix that decays moves in proportion to "
                         "its norm"));
  k.push_back(number_key(MR_FIELD(optim.lr), at_least(0), "learning rate after warm-up"));
  k.push_back(number_key(MR_FIELD(optim.lr_batch), at_least(0),
                         "above 0: optim.lr is for this global batch and is scaled by global_batch / lr_batch"));
  k.push_back(choice_key(MR_FIELD(optim.schedule),
                         Choices<LrSchedule>{{"constant", LrSchedule::constant},
                                             {"step", LrSchedule::step},
                                             {"cosine", LrSchedule::cosine},
                                             {"linear", LrSchedule::linear}},
                         "how the learning rate goes down"));
  k.push_back(number_key(MR_FIELD(optim.warmup), at_least(0), "epochs over which the learning rate rises from zero"));
  k.push_back(number_key(MR_FIELD(optim.min_lr), at_least(0), "cosine and linear end at this learning rate"));
  k.push_back(numbers_key(MR_FIELD(optim.milestones), at_least(0),
                          "step: epochs at which the learning rate is multiplied by optim.gamma"));
  k.push_back(number_key(MR_FIELD(optim.gamma), above(0), "step: the factor at each milestone"));
  k.push_back(number_key(MR_FIELD(optim.momentum), fraction(), "sgd, lars: share of the last update that is kept"));
  k.push_back(switch_key(MR_FIELD(optim.nesterov), "sgd, lars: look-ahead momentum"));
  k.push_back(number_key(MR_FIELD(optim.weight_decay), at_least(0),
                         "pull of weights to zero; not on biases and norms; lars and lamb scale only what decays"));
  k.push_back(number_key(MR_FIELD(optim.beta1), fraction(), "adamw, lamb: memory of the first moment"));
  k.push_back(number_key(MR_FIELD(optim.beta2), fraction(), "adamw, lamb: memory of the second moment"));
  k.push_back(number_key(MR_FIELD(optim.epsilon), above(0),
                         "adamw, lamb: added to the root of the second moment; lars: to the divisor of its ratio"));
  k.push_back(number_key(MR_FIELD(optim.trust_coefficient), above(0),
                         "lars: a step's share of a matrix' norm, before the learning rate"));
  k.push_back(number_key(MR_FIELD(optim.zero), Range{.low = 0, .high = 1},
                         "ZeRO stage; 1: a rank keeps the moments of its share of the parameters alone, updates these "
                         "and gathers the others' during the next forward pass; on a CPU the result is the same bits"));
  k.push_back(number_key(MR_FIELD(optim.clip), at_least(0), "above 0: scale gradients down to this global norm"));
  k.push_back(number_key(MR_FIELD(optim.loss_scale), above(0), "fp16: where the dynamic loss scale starts"));
  k.push_back(number_key(MR_FIELD(optim.scale_interval), at_least(1),
                         "fp16: steps without overflow until the loss scale doubles"));
}

void add_rest(std::vector<Key>& k) {
  k.push_back(size_key(
      MR_FIELD(comm.bucket_size), Range{.low = 1024, .high = double(1ull << 40)},
      "gradients are summed over ranks in buckets of this size; small ones start earlier, large ones cost less each"));
  k.push_back(choice_key(MR_FIELD(comm.grad_dtype),
                         Choices<DType>{{"none", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}},
                         "type of gradients while summed: half the bytes, less precision"));
  k.push_back(switch_key(MR_FIELD(comm.overlap), "start sums during the backward pass; the result is the same bits"));
  k.push_back(choice_key(MR_FIELD(comm.progress),
                         Choices<CollectiveOptions::Progress>{{"auto", CollectiveOptions::Progress::automatic},
                                                              {"thread", CollectiveOptions::Progress::thread},
                                                              {"inline", CollectiveOptions::Progress::inline_}},
                         "who moves sums on: a thread of its own, or the step; auto: a thread where a core is free"));
  k.push_back(choice_key(
      MR_FIELD(comm.backend),
      Choices<CudaOptions::Sums>{
          {"auto", CudaOptions::Sums::automatic}, {"nccl", CudaOptions::Sums::nccl}, {"mpi", CudaOptions::Sums::mpi}},
      "on GPUs: who sums gradients; mpi goes by way of host memory, for ranks that share a GPU"));
  k.push_back(duration_key(MR_FIELD(comm.timeout), above(0), "a sum that takes longer ends the run with exit 5"));
  k.push_back(
      hidden(duration_key(MR_FIELD(comm.test_delay), at_least(0), "tests: time that every summed MB takes longer")));
  k.push_back(text_key(MR_FIELD(checkpoint.every), "500, 2e, 10m or none",
                       "steps, epochs or time between checkpoints; one is written at the end in any case"));
  k.push_back(number_key(MR_FIELD(checkpoint.keep), at_least(1),
                         "newest checkpoints kept; the best by validation accuracy is kept besides"));
  k.push_back(switch_key(MR_FIELD(cuda.graph),
                         "capture a step once and replay it as one launch; off: launch one by one, to debug"));
  k.push_back(number_key(MR_FIELD(cuda.graph_micro_batches), at_least(1),
                         "micro-batches in one graph, at most: a step with more of them is several graphs; that many "
                         "are kept on the GPU as they were read"));
  using Crumbs = CudaOptions::Breadcrumbs;
  k.push_back(choice_key(
      MR_FIELD(cuda.breadcrumbs), Choices<Crumbs>{{"on", Crumbs::each}, {"some", Crumbs::some}, {"off", Crumbs::none}},
      "what recorded steps tell when they fail: the operation (on; a mark of 1 to 2 us before each), one of sixteen "
      "(some), or the step alone (off)"));
  k.push_back(switch_key(MR_FIELD(cuda.autotune),
                         "time the candidates for each convolution and matrix product, keep the fastest"));
  k.push_back(switch_key(MR_FIELD(cuda.tf32), "with fp32: let tensor cores round factors to 10 bits of mantissa"));
  k.push_back(size_key(MR_FIELD(cuda.workspace), Range{.low = 0, .high = double(1ull << 40)},
                       "most scratch memory that one convolution may take"));
  k.push_back(number_key(MR_FIELD(cuda.nccl_max_ctas), at_least(1),
                         "most blocks that NCCL may take from the step; auto: 8 on one host, 16 over several",
                         auto_is_zero));
  k.push_back(duration_key(MR_FIELD(log.every), at_least(0), "time between progress lines in a file or pipe"));
  k.push_back(
      switch_key(MR_FIELD(log.tensorboard), "write events for TensorBoard into the folder tensorboard of run.dir"));
  k.push_back(number_key(MR_FIELD(log.tensorboard_every), at_least(1), "steps from one of these events to the next"));
  k.push_back(text_key(MR_FIELD(log.prometheus), "path",
                       "a file, .prom at its end, that always says how the run goes, for Prometheus' node exporter "
                       "(its textfile collector) on the host of rank 0; one a run"));
  k.push_back(duration_key(MR_FIELD(log.prometheus_every), above(0), "least time from one writing of it to the next"));
  k.push_back(number_key(MR_FIELD(log.profile_steps), between(0, 1000),
                         "steps whose phases, sums and reads are kept in trace.json, of all ranks on one clock: so "
                         "many one after the other, from the 21st on where there are more; 0: none"));
  k.push_back(switch_key(MR_FIELD(account.probe),
                         "at the end of a run measure what its verdict says, by steps with a part left out and by "
                         "changes that are tried; takes half a minute"));
}

void check_checkpoint_interval(Key& key) {
  key.set = [plain = key.set](RunConfig& c, const std::vector<std::string>& words) {
    plain(c, words);
    const std::string prefix = "checkpoint.every: ";
    try {
      CheckpointInterval::parse(c.checkpoint.every);
    } catch (const Error& error) {
      const std::string why = error.what();
      throw Error(error.code(), why.starts_with(prefix) ? why.substr(prefix.size()) : why);
    }
  };
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> k;
    add_run(k), add_data_keys(k), add_model(k), add_train(k), add_optim(k), add_rest(k);
    for (Key& key : k)
      if (key.name == "checkpoint.every") check_checkpoint_interval(key);
    return k;
  }();
  return table;
}

std::string value_text(const RunConfig& config, const std::string& name) {
  const Key* key = find_key(name);
  MR_CHECK(key);
  return join_words(*key, key->get(config));
}

const std::vector<KeyAlias>& key_aliases() {
  static const std::vector<KeyAlias> table = {
      {"comm.compress", "comm.grad_dtype"},
      {"comm.bucket", "comm.bucket_size"},
      {"data.zoom", "data.random_resized_crop"},
      {"cuda.channels", "cuda.nccl_max_ctas"},
      {"cuda.tune", "cuda.autotune"},
      {"optim.trust", "optim.trust_coefficient"},
      {"log.trace", "log.profile_steps"},
  };
  return table;
}

std::string current_key_name(const std::string& name) {
  for (const KeyAlias& alias : key_aliases())
    if (alias.old_name == name) return alias.name;
  return name;
}

const Key* find_key(const std::string& name) {
  const std::string current = current_key_name(name);
  for (const Key& key : keys())
    if (key.name == current) return &key;
  return nullptr;
}

void warn_if_renamed(const std::string& where, const std::string& written, const Key& key) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  if (written == key.name) return;
  const std::lock_guard lock(mutex);
  if (warned.insert(written).second) log::warn(cat(where, ": ", written, " is deprecated. use ", key.name, " instead"));
}

const char* group_title(const std::string& group) {
  if (group == "run") return "the run as a whole";
  if (group == "data") return "what is read, and how";
  if (group == "model") return "the network";
  if (group == "train") return "how long, and how much at once";
  if (group == "optim") return "the optimizer and its learning rate";
  if (group == "comm") return "sums over ranks";
  if (group == "checkpoint") return "saved states";
  if (group == "cuda") return "steps on GPUs";
  if (group == "account") return "where the time went";
  return "lines for people";
}

}  // namespace millrace
