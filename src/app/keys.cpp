#include "keys.hpp"

#include "key_forms.hpp"
#include "millrace/train/schedule.hpp"

// A key is named as its field is.
#define FIELD(path) \
#path, [](auto& c) -> auto& { return c.path; }

namespace millrace::app {
namespace {

using Layout = DataOptions::Layout;
constexpr double from_zero = 0;

void add_run(std::vector<Key>& k) {
  k.push_back(
      text_key(FIELD(run.dir), "path",
               "folder of the run: configuration, metrics, checkpoints; when empty: runs/<name of the first file>"));
  k.push_back(choice_key(FIELD(run.resume),
                         Choices<Resume>{{"auto", Resume::automatic}, {"must", Resume::must}, {"never", Resume::never}},
                         "continue from the newest whole checkpoint: if there is one, or fail without, or start anew "
                         "(removes the old ones)"));
  k.push_back(number_key(FIELD(run.seed), at_least(0),
                         "seed of every random choice: initial weights, order, augmentation, dropout"));
  k.push_back(
      choice_key(FIELD(run.device),
                 Choices<DeviceChoice>{
                     {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}},
                 "where to compute; auto takes CUDA when this build and this machine have it"));
  k.push_back(
      choice_key(FIELD(run.precision),
                 Choices<Precision>{{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}},
                 "of activations and matrix products; master weights are fp32; fp16 scales the loss; slow on a CPU "
                 "without that type"));
  k.push_back(switch_key(FIELD(run.deterministic),
                         "same ranks, threads and libraries give the same bits; may cost some speed on CUDA"));
  k.push_back(number_key(FIELD(run.threads), at_least(1),
                         "compute threads of a rank; auto: its share of the host's cores", from_zero));
  k.push_back(size_key(FIELD(run.memory), Range{.low = 1, .high = double(1ull << 50)},
                       "most memory that a rank may plan with; auto: its share of what is free at the start", true));
  k.push_back(number_key(FIELD(run.profile), Range{.low = 0, .high = 900},
                         "on GPUs: trace the kernels of so many steps of every thousand, for the account of busy time, "
                         "exposed communication and heaviest kernels; costs seconds at the start and slows traced "
                         "steps; 0: never"));
  k.push_back(duration_key(
      FIELD(run.walltime), above(0),
      "checkpoint and exit 75 before this much time has passed; auto: SLURM_JOB_END_TIME, else never", from_zero));
  k.push_back(duration_key(FIELD(run.stop_margin), at_least(0), "how long before the end of the time to stop"));
}

// Also on|off and so on, as versions had it that knew one order.
Key shuffle_key() {
  Key key = choice_key(
      FIELD(data.shuffle),
      Choices<Shuffle>{{"global", Shuffle::global}, {"block", Shuffle::block}, {"off", Shuffle::off}},
      "the order of an epoch. global: all samples at random; block: blocks of neighbours at random, and the samples of "
      "some blocks among each other, so that each chunk is decoded once; off: as stored");
  key.set = [strict = key.set](RunConfig& c, std::vector<std::string> words) {
    for (auto& word : words) {
      if (word == "on" || word == "yes" || word == "true" || word == "1") word = "global";
      if (word == "no" || word == "false" || word == "0") word = "off";
    }
    strict(c, words);
  };
  return key;
}

void add_faults(std::vector<Key>& k) {
  k.push_back(choice_key(FIELD(data.on_error), Choices<OnError>{{"stop", OnError::stop}, {"skip", OnError::skip}},
                         "when a sample cannot be read or decoded: end the run, or let it count for nothing in its "
                         "place; needs labels"));
  k.push_back(number_key(FIELD(data.skip_limit), Range{.low = 0, .high = 1},
                         "skip: the run ends when more than this share of an epoch's samples was skipped"));
  k.push_back(number_key(FIELD(data.retries), between(0, 100),
                         "how often a read is tried again whose error may pass (EIO, ESTALE, ETIMEDOUT, ...)"));
  k.push_back(duration_key(FIELD(data.retry_delay), between(0, 5),
                           "wait before the first of these tries; it doubles with each, to 5s at most"));
  k.push_back(duration_key(FIELD(data.slow_read), at_least(0),
                           "warn of a read that takes longer, once a file, with rank and file; 0s: never"));
  k.push_back(
      duration_key(FIELD(data.read_timeout), at_least(0),
                   "a read that takes longer ends the run with exit 3; 0s: never. shorter than comm.timeout, or "
                   "the ranks that wait end it without naming the file"));
}

void add_view(std::vector<Key>& k) {
  k.push_back(choice_key(FIELD(data.sample),
                         Choices<SampleKind>{{"rows", SampleKind::rows},
                                             {"patch", SampleKind::patch},
                                             {"pair", SampleKind::pair},
                                             {"tokens", SampleKind::tokens}},
                         "what a sample is. rows: a row of x with one of y; patch: a square around a labelled pixel of "
                         "a scene; pair: row t of x, whose target is row t + data.lead of it; tokens: a window of a "
                         "text of token numbers, "
                         "whose label is the token behind it"));
  k.push_back(number_key(FIELD(data.patch), at_least(0), "sample = patch: side of the square, odd"));
  k.push_back(number_key(FIELD(data.holdout), share(),
                         "sample = patch: share of the labelled pixels of a scene that data.valid takes, in blocks, "
                         "and data.train leaves away with a margin around them; name the scene in both"));
  k.push_back(number_key(FIELD(data.lead), at_least(1), "sample = pair: rows from a sample to its target"));
  k.push_back(number_key(FIELD(data.window), at_least(0), "sample = tokens: tokens of a sample"));
  k.push_back(number_key(FIELD(data.stride), at_least(1), "sample = tokens: from one window to the next"));
  k.push_back(
      number_key(FIELD(data.vocabulary), Range{.low = 1, .high = 2147483647},
                 "sample = tokens: all are below it, which is checked; auto: the file's attribute classes, else "
                 "the largest in the files and one, for which they are read when the run starts",
                 from_zero));
}

void add_data(std::vector<Key>& k) {
  const char* paths = "paths or globs";
  k.push_back(strings_key(FIELD(data.train), Key::Many::words, paths,
                          "HDF5 files to train on, or synthetic:images:rows=50000,shape=32x32x3,classes=10,seed=1"));
  k.push_back(strings_key(FIELD(data.valid), Key::Many::words, paths, "HDF5 files to evaluate on"));
  k.push_back(text_key(FIELD(data.x), "name, or names with commas",
                       "data set of the samples inside the files; several are joined along the channels"));
  k.push_back(text_key(FIELD(data.y), "name, or names with commas",
                       "data set of the labels or targets; several floating-point ones are joined to one target"));
  add_view(k);
  k.push_back(choice_key(
      FIELD(data.layout),
      Choices<Layout>{{"auto", Layout::automatic},
                      {"channels_last", Layout::channels_last},
                      {"channels_first", Layout::channels_first},
                      {"no_channels", Layout::no_channels}},
      "where a sample's channels are; auto: the file's attribute, else told by the shape. 1-D signals need it; "
      "no_channels: all extents are spatial, one channel is added"));
  k.push_back(number_key(FIELD(data.scale), above(0),
                         "factor on stored values; auto: the file's attribute (scale, or scale_factor of the data "
                         "set), 1/255 for 8-bit images, else 1",
                         from_zero));
  k.push_back(number_key(FIELD(data.offset), Range{},
                         "added to value * scale; auto: the file's attribute (offset, or add_offset of the data set), "
                         "else 0",
                         files_offset));
  k.push_back(choice_key(FIELD(data.transform),
                         Choices<Transform>{{"none", Transform::none}, {"log1p", Transform::log1p}},
                         "log1p: ln(1 + v) of the scaled value, before it is normalised"));
  k.push_back(
      strings_key(FIELD(data.channels), Key::Many::words, "numbers and ranges",
                  "channels that the network takes, in this order, of those stored, from 0: 0-3 7; empty: all"));
  k.push_back(numbers_key(FIELD(data.mean), Range{},
                          "of each channel that the network takes, after scale, offset and transform; with data.std; "
                          "empty: from the files, or measured"));
  k.push_back(numbers_key(FIELD(data.std), above(0), "the standard deviations to data.mean"));
  k.push_back(
      numbers_key(FIELD(data.subvolume), at_least(1),
                  "spatial extents of the part of a sample that the network takes: with data.augment at a random "
                  "place in training, else the middle; empty: all of it"));
  k.push_back(number_key(FIELD(data.resize), at_least(0),
                         "encoded images (JPEG, PNG): pixels of the short side; 0: not resized"));
  k.push_back(number_key(FIELD(data.crop), at_least(0),
                         "encoded images: side of the square cut from the middle; 0: data.resize; both 0: all images "
                         "are of one size"));
  k.push_back(choice_key(
      FIELD(data.reader),
      Choices<Reader>{{"auto", Reader::automatic},
                      {"direct", Reader::direct},
                      {"mmap", Reader::mmap},
                      {"uring", Reader::uring},
                      {"mpio", Reader::mpio},
                      {"mpio_collective", Reader::mpio_collective}},
      "how files are read; all give the same bytes. direct: pread through the page cache, and of chunks that the "
      "workers "
      "decode; mmap: files mapped into memory; uring: past the page cache, many reads under way (O_DIRECT, io_uring); "
      "mpio: HDF5 through MPI-IO, any file, one worker; mpio_collective: the same by all ranks together; auto: mmap "
      "for what fits in half of the free memory, uring for "
      "what does not, direct for chunks and on network file systems"));
  k.push_back(text_key(
      "data.cache", [](auto& c) -> auto& { return c.data.cache.where; }, "none, memory or folder",
      "copies of the files near each node, made by its ranks together during the first epoch: memory "
      "(/dev/shm, gone with the run) or a folder of the node's own, where the next run finds them"));
  k.push_back(size_key(
      "data.cache_budget", [](auto& c) -> auto& { return c.data.cache.budget; },
      Range{.low = 1, .high = double(1ull << 50)},
      "most bytes of these copies on a node; auto: what is free there, less a twentieth", true));
  k.push_back(switch_key(FIELD(data.manifest_cache),
                         "64 files or more: what their headers say is kept beside them (else in "
                         "$XDG_CACHE_HOME/millrace) for the next start, which then looks at sizes and times alone"));
  k.push_back(number_key(FIELD(data.workers), between(0, 256),
                         "loader threads of a rank, 256 at most; 0: the step reads by itself; auto: by the free cores",
                         -1));
  k.push_back(number_key(
      FIELD(data.prefetch), at_least(2),
      "micro-batches read ahead; each costs its bytes in host memory. auto: 4, and twice as many whenever the "
      "step waited for what could have been read before, up to 64 MiB of them",
      from_zero));
  k.push_back(shuffle_key());
  const Range samples{.low = 1, .high = double(std::int64_t(1) << 40)};
  k.push_back(number_key(FIELD(data.shuffle_window), samples,
                         "shuffle = block: samples of consecutive blocks that are mixed, rounded up to whole blocks; "
                         "auto: as many as half of data.chunk_cache holds",
                         from_zero));
  k.push_back(number_key(FIELD(data.shuffle_block), samples,
                         "shuffle = block: samples that stay neighbours until they are mixed in a window; auto: the "
                         "rows of a chunk, or of 1 MiB where the data is not chunked",
                         from_zero));
  k.push_back(size_key(FIELD(data.chunk_cache), Range{.low = 1, .high = double(1ull << 50)},
                       "chunked data: most memory of a rank for decoded chunks that are kept"));
  k.push_back(
      switch_key(FIELD(data.normalize), "subtract the mean and divide by the standard deviation of each channel"));
  k.push_back(
      switch_key(FIELD(data.augment), "in training: random crop after padding, flip, and what follows; images only"));
  k.push_back(
      number_key(FIELD(data.crop_pad), at_least(0), "augment: pixels of zero padding on each side before the crop"));
  k.push_back(switch_key(FIELD(data.flip), "augment: mirror left and right with probability one half"));
  k.push_back(numbers_key(FIELD(data.flip_axes), between(0, 2),
                          "with data.flip: the spatial axes, from 0, of which each is mirrored with probability one "
                          "half; empty: the last"));
  k.push_back(number_key(FIELD(data.zoom), between(0, 1),
                         "augment: in place of the crop, a random part of at least this share of the area, enlarged to "
                         "the whole image (0.08 is usual for ImageNet); 0: none"));
  k.push_back(
      number_key(FIELD(data.cutout), at_least(0),
                 "augment: side in pixels of a square at a random place that is set to the data's mean; 0: none"));
  k.push_back(number_key(FIELD(data.brightness), share(),
                         "augment: values times a random factor of at most so much more or less than 1, one a sample"));
  k.push_back(number_key(FIELD(data.contrast), share(), "augment: the same of the difference from the data's mean"));
  add_faults(k);
}

void add_model(std::vector<Key>& k) {
  k.push_back(word_key(FIELD(model.name), {"mlp", "resnet", "layers"},
                       "kind of network; layers: written out under model.layers"));
  k.push_back(number_key(FIELD(model.depth), at_least(1),
                         "resnet: 6n+2 (8, 20, 32, 44, 56, 110: CIFAR style) or 18, 34, 50, 101 (ImageNet style)"));
  k.push_back(word_key(FIELD(model.stem), {"auto", "cifar", "pool", "imagenet"},
                       "resnet: 3x3, or 7x7 with stride 2 and pooling; auto: by depth and image size"));
  k.push_back(number_key(FIELD(model.width), at_least(1),
                         "resnet: channels of the first stage; auto: 16 CIFAR style, 64 ImageNet style", from_zero));
  k.push_back(numbers_key(FIELD(model.hidden), at_least(1), "mlp: widths of the hidden layers"));
  k.push_back(word_key(FIELD(model.activation), {"relu", "gelu", "gelu_tanh", "tanh"},
                       "mlp: function after each hidden layer; gelu_tanh: gelu by its approximation with tanh, which "
                       "cuBLAS puts into its products"));
  k.push_back(number_key(FIELD(model.dropout), share(), "mlp: share of activations set to zero in training"));
  k.push_back(strings_key(FIELD(model.layers), Key::Many::lines, "a layer",
                          "layers: the network, one layer each time the key is given"));
  k.push_back(word_key(FIELD(model.loss), {"auto", "cross_entropy", "mse"},
                       "auto: cross_entropy for class labels, mse for float targets"));
  k.push_back(number_key(FIELD(model.label_smoothing), share(),
                         "cross_entropy: share of the probability spread over all classes"));
  k.push_back(
      number_key(FIELD(model.fusion), at_least(0),
                 "how far operations are merged, 0: not; 1: norms and linear layers with what follows; 2: batch "
                 "norms' sums into convolutions, gradients of relu and gelu_tanh into the linear layer behind, where "
                 "they can (millrace plan says where not); auto: 1",
                 -1));
}

void add_train(std::vector<Key>& k) {
  k.push_back(number_key(FIELD(train.epochs), at_least(0), "passes over the training data"));
  k.push_back(number_key(FIELD(train.steps), at_least(0),
                         "above 0: stop after this many optimizer steps, whatever train.epochs says"));
  k.push_back(number_key(FIELD(train.global_batch), at_least(1), "samples of one optimizer step, over all ranks"));
  k.push_back(number_key(FIELD(train.micro_batch), at_least(1),
                         "samples computed at once by a rank: less memory when small; auto: global_batch / ranks, and "
                         "an eighth of that unless train.balance = even",
                         from_zero));
  k.push_back(text_key(FIELD(train.balance), "even, auto or file",
                       "micro-batches of a rank: even; auto: fewer for ranks that are slower, measured as the run "
                       "goes; the shares.jsonl of a run: as there, to the bit"));
  k.push_back(switch_key(FIELD(train.evaluate), "evaluate on data.valid after every epoch"));
  k.push_back(hidden(
      number_key(FIELD(train.test_force_overflow_at), at_least(-1), "tests: the step that pretends to overflow")));
  k.push_back(hidden(duration_key(FIELD(train.test_compute), at_least(0),
                                  "tests: time that each sample takes longer, a third of it in the forward pass")));
}

void add_optim(std::vector<Key>& k) {
  k.push_back(word_key(FIELD(optim.name), {"sgd", "adamw", "lars", "lamb"},
                       "optimizer; adamw and lamb keep two moments: 4 bytes a parameter more than sgd and lars; lars "
                       "and lamb are sgd and Adam for large batches: each matrix that decays moves in proportion to "
                       "its norm"));
  k.push_back(number_key(FIELD(optim.lr), at_least(0), "learning rate after warm-up"));
  k.push_back(number_key(FIELD(optim.lr_batch), at_least(0),
                         "above 0: optim.lr is for this global batch and is scaled by global_batch / lr_batch"));
  k.push_back(
      word_key(FIELD(optim.schedule), {"constant", "step", "cosine", "linear"}, "how the learning rate goes down"));
  k.push_back(number_key(FIELD(optim.warmup), at_least(0), "epochs over which the learning rate rises from zero"));
  k.push_back(number_key(FIELD(optim.min_lr), at_least(0), "cosine and linear end at this learning rate"));
  k.push_back(numbers_key(FIELD(optim.milestones), at_least(0),
                          "step: epochs at which the learning rate is multiplied by optim.gamma"));
  k.push_back(number_key(FIELD(optim.gamma), above(0), "step: the factor at each milestone"));
  k.push_back(number_key(FIELD(optim.momentum), share(), "sgd, lars: share of the last update that is kept"));
  k.push_back(switch_key(FIELD(optim.nesterov), "sgd, lars: look-ahead momentum"));
  k.push_back(number_key(FIELD(optim.weight_decay), at_least(0),
                         "pull of weights to zero; not on biases and norms; lars and lamb scale only what decays"));
  k.push_back(number_key(FIELD(optim.beta1), share(), "adamw, lamb: memory of the first moment"));
  k.push_back(number_key(FIELD(optim.beta2), share(), "adamw, lamb: memory of the second moment"));
  k.push_back(number_key(FIELD(optim.epsilon), above(0),
                         "adamw, lamb: added to the root of the second moment; lars: to the divisor of its ratio"));
  k.push_back(
      number_key(FIELD(optim.trust), above(0), "lars: a step's share of a matrix' norm, before the learning rate"));
  k.push_back(number_key(FIELD(optim.zero), Range{.low = 0, .high = 1},
                         "ZeRO stage; 1: a rank keeps the moments of its share of the parameters alone, updates these "
                         "and gathers the others' during the next forward pass; on a CPU the result is the same bits"));
  k.push_back(number_key(FIELD(optim.clip), at_least(0), "above 0: scale gradients down to this global norm"));
  k.push_back(number_key(FIELD(optim.loss_scale), above(0), "fp16: where the dynamic loss scale starts"));
  k.push_back(number_key(FIELD(optim.scale_interval), at_least(1),
                         "fp16: steps without overflow until the loss scale doubles"));
}

void add_rest(std::vector<Key>& k) {
  k.push_back(size_key(
      FIELD(comm.bucket), Range{.low = 1024, .high = double(1ull << 40)},
      "gradients are summed over ranks in buckets of this size; small ones start earlier, large ones cost less each"));
  k.push_back(word_key(FIELD(comm.compress), {"none", "bf16", "fp16"},
                       "type of gradients while summed: half the bytes, less precision"));
  k.push_back(switch_key(FIELD(comm.overlap), "start sums during the backward pass; the result is the same bits"));
  k.push_back(word_key(FIELD(comm.progress), {"auto", "thread", "inline"},
                       "who moves sums on: a thread of its own, or the step; auto: a thread where a core is free"));
  k.push_back(word_key(FIELD(comm.backend), {"auto", "nccl", "mpi"},
                       "on GPUs: who sums gradients; mpi goes by way of host memory, for ranks that share a GPU"));
  k.push_back(duration_key(FIELD(comm.timeout), above(0), "a sum that takes longer ends the run with exit 5"));
  k.push_back(
      hidden(duration_key(FIELD(comm.test_delay), at_least(0), "tests: time that every summed MB takes longer")));
  k.push_back(text_key(FIELD(checkpoint.every), "500, 2e, 10m or none",
                       "steps, epochs or time between checkpoints; one is written at the end in any case"));
  k.push_back(number_key(FIELD(checkpoint.keep), at_least(1),
                         "newest checkpoints kept; the best by validation accuracy is kept besides"));
  k.push_back(switch_key(FIELD(cuda.graph),
                         "capture a step once and replay it as one launch; off: launch one by one, to debug"));
  k.push_back(number_key(FIELD(cuda.graph_batches), at_least(1),
                         "micro-batches in one graph, at most: a step with more of them is several graphs; that many "
                         "are kept on the GPU as they were read"));
  using Crumbs = CudaOptions::Breadcrumbs;
  k.push_back(choice_key(
      FIELD(cuda.breadcrumbs), Choices<Crumbs>{{"on", Crumbs::each}, {"some", Crumbs::some}, {"off", Crumbs::none}},
      "what recorded steps tell when they fail: the operation (on; a mark of 1 to 2 us before each), one of sixteen "
      "(some), or the step alone (off)"));
  k.push_back(
      switch_key(FIELD(cuda.tune), "time the candidates for each convolution and matrix product, keep the fastest"));
  k.push_back(switch_key(FIELD(cuda.tf32), "with fp32: let tensor cores round factors to 10 bits of mantissa"));
  k.push_back(size_key(FIELD(cuda.workspace), Range{.low = 0, .high = double(1ull << 40)},
                       "most scratch memory that one convolution may take"));
  k.push_back(number_key(FIELD(cuda.channels), at_least(1),
                         "most blocks that NCCL may take from the step; auto: 8 on one host, 16 over several",
                         from_zero));
  k.push_back(duration_key(FIELD(log.every), at_least(0), "time between progress lines in a file or pipe"));
  k.push_back(
      switch_key(FIELD(log.tensorboard), "write events for TensorBoard into the folder tensorboard of run.dir"));
  k.push_back(number_key(FIELD(log.tensorboard_every), at_least(1), "steps from one of these events to the next"));
  k.push_back(text_key(FIELD(log.prometheus), "path",
                       "a file, .prom at its end, that always says how the run goes, for Prometheus' node exporter "
                       "(its textfile collector) on the host of rank 0; one a run"));
  k.push_back(duration_key(FIELD(log.prometheus_every), above(0), "least time from one writing of it to the next"));
  k.push_back(number_key(FIELD(log.trace), between(0, 1000),
                         "steps whose phases, sums and reads are kept in trace.json, of all ranks on one clock: so "
                         "many one after the other, from the 21st on where there are more; 0: none"));
  k.push_back(switch_key(FIELD(account.probe),
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
    add_run(k), add_data(k), add_model(k), add_train(k), add_optim(k), add_rest(k);
    for (Key& key : k)
      if (key.name == "checkpoint.every") check_checkpoint_interval(key);
    return k;
  }();
  return table;
}

const Key* find_key(const std::string& name) {
  for (const Key& key : keys())
    if (key.name == name) return &key;
  return nullptr;
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

}  // namespace millrace::app
