// RunConfig: all that a run is told, as a plain value. Each struct belongs to the code that obeys it;
// src/app/options.cpp binds every field to its key, and docs/configuration.md is generated from the same table.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/compute/execution_context.hpp"
#include "millrace/data/index/faults.hpp"
#include "millrace/data/index/local_cache_options.hpp"
#include "millrace/data/index/sample_view.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/source.hpp"

namespace millrace {

enum class Resume { automatic, must, never };
enum class Shuffle { off, global, block };
enum class Precision { fp32, bf16, fp16 };
enum class DeviceChoice { automatic, cpu, cuda };
enum class ModelName { mlp, resnet, layers };
enum class ResNetStem { automatic, cifar, pool, imagenet };
enum class Loss { automatic, cross_entropy, mse };
enum class OptimizerName { sgd, adamw, lars, lamb };
enum class LrSchedule { constant, step, cosine, linear };

struct RunOptions {
  std::string dir;  // run.dir; empty: runs/<name of the first configuration file>
  Resume resume = Resume::automatic;
  std::uint64_t seed = 1;
  DeviceChoice device = DeviceChoice::automatic;
  Precision precision = Precision::fp32;
  bool deterministic = true;  // same ranks, threads and libraries: the same bits
  int threads = 0;            // compute threads a rank; 0: the rank's share of the cores
  std::uint64_t memory = 0;   // bytes that a rank may plan with; 0: its share of what is free at the start
  int profile = 0;            // steps of each thousand whose kernels are traced, on devices that tell
  double walltime = 0;        // seconds; 0: from SLURM_JOB_END_TIME when it is set, else none
  double stop_margin = 120;   // stop this long before the end
};

// data.*: which files and which data sets inside them.
struct DataFiles {
  std::vector<std::string> train, valid;  // HDF5 paths, globs or a synthetic data set
  std::string x = "x", y = "y";           // data sets of the samples and of the labels or targets
  DataOptions::Layout layout = DataOptions::Layout::automatic;
};

// data.*: how stored values become values that the network takes.
struct ValueOptions {
  double scale = 0;                   // factor on stored values; 0: from the files
  double offset = offset_from_files;  // added after the scaling
  Transform transform = Transform::none;
  std::vector<std::string> channels;  // "0-3", "7": stored channels that the network takes; empty: all
  std::vector<double> mean, std;      // one for each of these channels; empty: from the files, or measured
  bool normalize = true;              // (x * scale + offset - mean) / std for each channel
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

struct DataConfig : DataFiles, ValueOptions, SampleOptions, ReadOptions, ShuffleOptions, AugmentOptions {};

struct ModelOptions {
  ModelName name = ModelName::mlp;
  std::int64_t depth = 20;  // resnet: 8, 20, 32, 44, 56, 110 (CIFAR style), 18, 34, 50 (ImageNet blocks)
  ResNetStem stem = ResNetStem::automatic;  // resnet: cifar (3x3), pool (3x3, max-pool 2), imagenet (7x7 stride 2 and
                                            // pooling); auto: by depth and image size
  std::int64_t width = 0;                   // resnet: channels of the first stage (0: 16 CIFAR style, 64 else)
  std::vector<std::int64_t> hidden{128};    // mlp: widths of the hidden layers
  std::string activation = "relu";
  double dropout = 0;
  std::vector<std::string> layers;  // layers: one line a layer, in order (repeat the key)
  Loss loss = Loss::automatic;      // automatic: by the labels
  double label_smoothing = 0;
  int fusion = -1;  // fusion level; -1: the usual one of the backend
};

struct TrainOptions {
  double epochs = 10;
  std::int64_t steps = 0;  // > 0: stop after this many optimizer steps, whatever epochs says
  std::int64_t global_batch = 128;
  std::int64_t micro_batch = 0;        // 0: global batch / ranks
  std::string balance = "even";        // auto, or the shares.jsonl of a run
  bool evaluate = true;                // every epoch, when data.valid is given
  double test_force_overflow_at = -1;  // tests: the step that pretends to overflow
  double test_compute = 0;             // tests: seconds that each sample takes longer, without any work
};

struct OptimOptions {
  OptimizerName name = OptimizerName::sgd;
  double lr = 0.1;
  double lr_batch =
      0;  // > 0: linear scaling rule: lr is for this global batch, and is multiplied by global_batch / lr_batch
  LrSchedule schedule = LrSchedule::cosine;
  double warmup = 0;               // epochs of linear warm-up
  double min_lr = 0;               // cosine and linear end here
  std::vector<double> milestones;  // step: epochs at which lr is multiplied by gamma
  double gamma = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 1e-4;  // not on biases and norms
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double trust_coefficient = 0.001;  // lars
  int zero = 0;                      // ZeRO stage; 1: each rank keeps the moments of its share of the parameters
  double clip = 0;                   // > 0: clip by global norm
  double loss_scale = 65536;         // fp16: where the dynamic loss scale starts
  std::int64_t scale_interval = 2000;
};

struct CommOptions {
  std::uint64_t bucket_size = 8u << 20;  // bytes of float32 gradients in one bucket
  DType grad_dtype = DType::f32;         // type of gradients in the all-reduce: f32 ("none"), bf16 or f16
  bool overlap = true;                   // start sums during backward
  CollectiveOptions::Progress progress = CollectiveOptions::Progress::automatic;
  CudaOptions::Sums backend = CudaOptions::Sums::automatic;  // on GPUs: NCCL, or MPI through host memory
  double timeout = 600;                                      // seconds until a stuck sum ends the run with exit 5
  double test_delay = 0;                                     // tests: seconds that every summed MB takes longer
};

struct CheckpointOptions {
  std::string every = "1e";  // "500" steps, "2e" epochs, "10m" of time, "none"
  std::int64_t keep = 3;     // newest kept; the best by validation accuracy is kept besides
};

struct LogOptions {
  double every = 10;                   // seconds between lines in a file or pipe
  bool tensorboard = false;            // events in run.dir/tensorboard
  std::int64_t tensorboard_every = 1;  // steps
  std::string prometheus;              // a file; empty: none
  double prometheus_every = 15;        // seconds
  int profile_steps = 4;               // steps of all ranks that trace.json records; 0: none
};

struct AccountOptions {
  bool probe = false;  // at the end of a run: measure what the verdict says, by steps with a part left out
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
  CudaOptions cuda;
  std::string text;  // the resolved configuration in re-runnable form, saved as config.cfg
};

}  // namespace millrace
