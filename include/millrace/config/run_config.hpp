// RunConfig: the configuration of a run as a plain value, with one struct for each group of keys. The name of a field
// is the name of its key. src/config binds the two; docs/reference/configuration.md is generated from the same table.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/compute/execution_context.hpp"
#include "millrace/data/index/faults.hpp"
#include "millrace/data/index/local_cache_options.hpp"
#include "millrace/data/index/sample_view.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/index/split_options.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/model/recompute_level.hpp"

namespace millrace {

enum class Resume { automatic, must, never };
enum class Shuffle { off, global, block };
enum class Precision { fp32, bf16, fp16 };
enum class DeviceChoice { automatic, cpu, cuda };
enum class ModelName { mlp, resnet, gpt2, llama, vit, convnext, unet, cosmoflow, hyperspectral, layers, pt2 };
enum class ModelInit { archive, fresh };
enum class Upsampling { linear, transposed };
enum class ResNetStem { automatic, cifar, pool, imagenet };
enum class Loss { automatic, cross_entropy, mse, mae, smooth_l1, binary_cross_entropy };
enum class OptimizerName { sgd, adamw, lars, lamb, muon };
enum class LrSchedule { constant, step, cosine, linear, polynomial, wsd, one_cycle, plateau };
enum class DecayShape { linear, cosine, sqrt };
// setup: equal bits on the same ranks and threads. strict: on any number of ranks and threads.
enum class Reproducible { setup, strict };
// Metrics of an evaluation: see src/train/session/metrics.hpp.
enum class BestMetric { loss, accuracy, top5, macro_f1, auc, mean_iou, mean_dice, perplexity, mae, rmse, r2 };

struct RunOptions {
  std::string dir;  // run.dir; empty: runs/<name of the first configuration file>
  Resume resume = Resume::automatic;
  std::uint64_t seed = 1;
  DeviceChoice device = DeviceChoice::automatic;
  Precision precision = Precision::fp32;
  bool deterministic = true;  // the same ranks, threads and libraries give bitwise equal results
  Reproducible reproducible = Reproducible::setup;
  int threads = 0;           // compute threads of a rank; 0: the rank's share of the cores
  std::uint64_t memory = 0;  // bytes that the plan of a rank may use; 0: its share of what is free at the start
  int profile = 0;           // on GPUs: steps of each thousand whose kernels are traced
  double walltime = 0;       // seconds; 0: until SLURM_JOB_END_TIME if it is set, else no limit
  double stop_margin = 120;  // seconds before the end of the wall time at which the run stops
};

// data.*: which files and which data sets inside them.
struct DataFiles {
  std::vector<std::string> train, valid;  // HDF5 paths, globs or a synthetic data set
  std::string x = "x", y = "y";           // data sets of the samples and of the labels or targets
  DataOptions::Layout layout = DataOptions::Layout::automatic;
  std::int64_t ignore_label = ignore_label_from_files;  // labels of this value do not count
};

// data.*: parts of data.train in place of data.valid.
struct SplitKeys : SplitOptions {
  SplitPart eval_split = SplitPart::valid;  // the part that evaluations and predictions of a checkpoint take
};

// data.*: how stored values become values that the network takes.
struct ValueOptions {
  double scale = 0;                   // factor on stored values; 0: from the files
  double offset = offset_from_files;  // added after the scaling
  Transform transform = Transform::none;
  std::vector<std::string> channels;  // "0-3", "7": stored channels that the network takes; empty: all
  std::vector<double> mean, std;      // one for each of these channels; empty: from the files, or measured
  bool normalize = true;              // (x * scale + offset - mean) / std for each channel
  bool normalize_targets = false;     // the same of each target of a regression
};

// data.*: how samples are cut out of arrays and images.
struct SampleOptions : SampleView {
  std::vector<std::int64_t> subvolume;  // spatial extents of the part that the network takes; empty: all of the sample
  std::int64_t resize = 0;              // encoded images: pixels of the short side; 0: not resized
  std::int64_t crop = 0;                // encoded images: side of the central square; 0: resize
};

// data.*: how files are read, and what happens when that fails.
struct ReadOptions : FaultOptions {
  Reader reader = Reader::automatic;
  bool manifest_cache = true;
  LocalCacheOptions cache;
  int workers = -1;  // loader threads of a rank; -1: by the free cores
  int prefetch = 0;  // micro-batches read ahead; 0: adapted during the run (LoaderOptions)
  std::uint64_t chunk_cache = ChunkOptions{}.cache_bytes;
};

// data.*: the order of the samples in an epoch. Counts are samples; 0: by the data and chunk_cache (block_order.hpp).
struct ShuffleOptions {
  Shuffle shuffle = Shuffle::global;
  std::int64_t shuffle_window = 0;
  std::int64_t shuffle_block = 0;
};

// data.*: random changes of training samples. Nothing here has an effect unless `augment` is set.
struct AugmentOptions {
  bool augment = false;
  std::int64_t crop_pad = 4;  // pixels of padding on each side before a random crop
  bool flip = true;
  std::vector<std::int64_t> flip_axes;  // spatial axes; empty: the last
  double random_resized_crop = 0;       // smallest fraction of the area of a random crop; 0: none
  std::int64_t cutout = 0;              // side in pixels of a square that is set to the mean; 0: none
  double brightness = 0, contrast = 0;  // largest relative change
  double saturation = 0;                // largest relative change of the colour strength
  double hue = 0;                       // largest rotation of the hue, in turns
};

struct DataConfig : DataFiles, SplitKeys, ValueOptions, SampleOptions, ReadOptions, ShuffleOptions, AugmentOptions {};

inline constexpr const char* balanced_class_weights = "balanced";  // by the labels of the training data

struct ModelOptions {
  ModelName name = ModelName::mlp;
  std::int64_t depth = 20;                  // resnet: 6n+2 (CIFAR style), or 18, 34, 50, 101 (ImageNet style)
  ResNetStem stem = ResNetStem::automatic;  // resnet: cifar (3x3), pool (3x3, max-pool 2), imagenet (7x7 stride 2 and
                                            // pooling); auto: by depth and image size
  std::int64_t width = 0;                   // resnet: channels of the first stage; 0: 16 for CIFAR style, else 64. Of
                                            // the others: channels of a token, or of the first stage
  std::vector<std::int64_t> hidden{128};    // mlp: widths of the hidden layers
  std::string activation = "relu";
  double dropout = 0, attention_dropout = 0;
  std::int64_t separator = -1;  // gpt2, llama: the last token of a document; -1: there are no documents
  std::string size = "auto";
  std::int64_t blocks = 0, heads = 0, key_heads = 0, feed_forward = 0, patch = 0;  // 0: as the size has it
  Upsampling upsample = Upsampling::linear;                                        // unet
  double rotary_base = 10000, drop_path = 0;
  std::vector<std::string> layers;  // layers: one line for each layer, in order
  std::string file;                 // pt2: path of the exported network
  ModelInit init = ModelInit::archive;
  Loss loss = Loss::automatic;  // automatic: by the labels
  double label_smoothing = 0;
  // cross_entropy: one number for each class, or balanced_class_weights; empty: all are 1
  std::vector<std::string> class_weights;
  double dice = 0;  // cross_entropy: weight of the Dice loss of each row
  double beta = 1;  // smooth_l1
  bool sync_batch_norm = false;
  int fusion = -1;                        // fusion level; -1: the default of the backend
  std::string weights;                    // file or folder with the weights that a new run begins with; empty: none
  std::vector<std::string> weights_skip;  // patterns of names whose parameters begin with fresh values all the same
};

struct TrainOptions {
  double epochs = 10;
  std::int64_t steps = 0;  // > 0: stop after this many optimizer steps, regardless of epochs
  std::int64_t global_batch = 128;
  std::int64_t micro_batch = 0;     // 0: global batch / ranks
  std::string balance = "even";     // even, auto, or the path of the shares.jsonl of a run
  bool evaluate = true;             // after every epoch, if data.valid is given
  std::int64_t evaluate_every = 0;  // > 0: also after every so many steps
  Recompute recompute = Recompute::off;
  std::uint64_t logits_memory = 256u << 20;  // bytes; 0: no limit
  std::int64_t patience = 0;                 // > 0: evaluations without improvement after which the run ends
  double mixup = 0, cutmix = 0;              // alpha of the Beta distribution; 0: off
  std::vector<std::string> freeze;           // patterns of names of parameters that do not change
};

struct OptimOptions {
  static constexpr int automatic_zero = -1;  // Session chooses `zero`
  OptimizerName name = OptimizerName::sgd;
  double lr = 0.1;  // > 0: lr is meant for this global batch, and is multiplied by global_batch / lr_batch (linear
                    // scaling rule)
  double lr_batch = 0;
  LrSchedule schedule = LrSchedule::cosine;
  double warmup = 0;               // epochs of linear warm-up
  double min_lr = 0;               // cosine, linear, polynomial, wsd: learning rate at the end; plateau: the lowest
  std::vector<double> milestones;  // step: epochs at which lr is multiplied by gamma
  double gamma = 0.1;
  double power = 1;    // polynomial
  double decay = 0.1;  // wsd: fraction of all steps over which the learning rate decays at the end
  DecayShape decay_shape = DecayShape::linear;
  std::int64_t patience = 10;  // plateau: evaluations without improvement that change nothing
  double pct_start = 0.3;      // one_cycle: fraction of all steps over which the learning rate rises
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 1e-4;      // not applied to biases and normalisation layers
  std::vector<std::string> group;  // PATTERN key=value ... (ParameterGroup)
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double trust_coefficient = 0.001;  // lars
  double muon_momentum = 0.95;
  bool muon_nesterov = true;
  OptimizerSpec::MuonScale muon_scale = OptimizerSpec::MuonScale::match_rms_adamw;
  int muon_steps = 5;
  double ema = 0;                      // > 0: decay of the exponential moving average of the weights
  int zero = automatic_zero;           // ZeRO stage; 1: each rank keeps the moments of its part of the parameters only
  double clip = 0;                     // > 0: clip gradients to this global norm
  double loss_scale = 65536;           // fp16: initial value of the dynamic loss scale
  std::int64_t scale_interval = 2000;  // fp16: steps without overflow after which the loss scale is doubled
};

struct CommOptions {
  std::uint64_t bucket_size = 8u << 20;  // bytes of float32 gradients in one bucket
  DType grad_dtype = DType::f32;         // type of gradients in the all-reduce: f32 ("none"), bf16 or f16
  bool overlap = true;                   // start all-reduces during the backward pass
  CollectiveOptions::Progress progress = CollectiveOptions::Progress::automatic;
  CudaOptions::CollectiveBackend backend =
      CudaOptions::CollectiveBackend::automatic;  // on GPUs: NCCL, or MPI through host memory
  double timeout = 600;  // seconds after which a stuck collective ends the run with exit code 5
};

struct CheckpointOptions {
  std::string every = "1e";  // "500" steps, "2e" epochs, "10m", "auto" or "none" (CheckpointInterval)
  // Seconds between failures of one host. The default is near what clusters report: 154 days in Kokolis et al. 2024
  // ("Revisiting Reliability in Large-Scale Machine Learning Research Clusters"), 264 days in the report on Llama 3.
  double mtbf = 150 * 86400.0;
  std::int64_t keep = 3;  // newest checkpoints that are kept, in addition to the best one
  BestMetric best = BestMetric::loss;
  bool safetensors = false;  // each checkpoint also as model.safetensors in run.dir
};

struct LogOptions {
  double every = 10;                   // seconds between progress lines in a file or pipe
  bool tensorboard = false;            // write events to run.dir/tensorboard
  std::int64_t tensorboard_every = 1;  // steps
  std::string prometheus;              // a file; empty: none
  double prometheus_every = 15;        // seconds
  int profile_steps = 4;               // steps of all ranks that trace.json records; 0: none
  bool speed_of_light = true;          // measure the rates of the machine, and show how far from them the steps are
};

struct AccountOptions {
  bool probe = false;  // at the end of a run: check the verdict by measuring steps without one of their parts
};

// What tests and scripts make a run do. The keys test.* are accepted, but neither printed by --help nor documented.
struct TestHooks {
  double force_overflow_at = -1;   // the step whose gradients overflow; -1: none
  double damage_gradient_at = -1;  // the step in which the last rank's reduced gradient gets a wrong value; -1: none
  double compute_delay = 0;        // seconds that each sample takes longer, without any work
  double all_reduce_delay = 0;     // seconds that each all-reduced MB takes longer
};

struct RunConfig {
  RunOptions run;
  DataConfig data;
  ModelOptions model;
  TrainOptions train;
  OptimOptions optim;
  CommOptions comm;
  CheckpointOptions checkpoint;
  LogOptions log;
  AccountOptions account;
  CpuOptions cpu;
  CudaOptions cuda;
  TestHooks test;
  std::string text;  // print_config of this configuration; saved as config.cfg
};

}  // namespace millrace
