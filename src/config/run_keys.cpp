// The keys of [run], [checkpoint], [log], [account] and [test].
#include "config/key_groups.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/config/schedule.hpp"

namespace millrace {
namespace {

void add_limits(Keys& k) {
  k.push_back(number_key(MR_FIELD(run.threads), at_least(1),
                         "compute threads of a rank; auto: the rank's share of the host's cores", auto_is_zero));
  k.push_back(size_key(MR_FIELD(run.memory), Range{.low = 1, .high = double(1ull << 50)},
                       "most memory that the plan of a rank may use; auto: the rank's share of the memory that is free "
                       "at the start",
                       true));
  k.push_back(number_key(MR_FIELD(run.profile), Range{.low = 0, .high = 900},
                         "on GPUs: trace the kernels of this many steps in every thousand. The account then shows busy "
                         "time, exposed communication and the heaviest kernels. Costs seconds at the start and slows "
                         "the traced steps; 0: never"));
  k.push_back(duration_key(MR_FIELD(run.walltime), above(0),
                           "write a checkpoint and exit with 75 before this much time has passed; auto: until "
                           "SLURM_JOB_END_TIME if it is set, else no limit",
                           auto_is_zero));
  k.push_back(
      duration_key(MR_FIELD(run.stop_margin), at_least(0), "how long before the end of the wall time the run stops"));
}

// The text of checkpoint.every is parsed where it is used, but refused here.
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

void add_run_keys(Keys& k) {
  k.push_back(text_key(MR_FIELD(run.dir), "path",
                       "folder of the run: configuration, metrics, checkpoints; empty: runs/<name of the first file>"));
  k.push_back(choice_key(MR_FIELD(run.resume),
                         Choices<Resume>{{"auto", Resume::automatic}, {"must", Resume::must}, {"never", Resume::never}},
                         "auto: continue from the newest complete checkpoint if there is one; must: fail if there is "
                         "none; never: start from the beginning and remove the old checkpoints"));
  k.push_back(number_key(MR_FIELD(run.seed), at_least(0),
                         "seed of every random choice: initial weights, sample order, augmentation, dropout"));
  k.push_back(
      choice_key(MR_FIELD(run.device),
                 Choices<DeviceChoice>{
                     {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}},
                 "where to compute; auto: CUDA if this build and this machine support it, else the CPU"));
  k.push_back(
      choice_key(MR_FIELD(run.precision),
                 Choices<Precision>{{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}},
                 "type of activations and matrix products. Master weights stay fp32. fp16 uses loss scaling. bf16 and "
                 "fp16 are slow on a CPU without hardware support"));
  k.push_back(switch_key(
      MR_FIELD(run.deterministic),
      "the same ranks, threads and libraries give bitwise equal results; may cost speed on CUDA, and switches "
      "cpu.autotune off"));
  k.push_back(choice_key(MR_FIELD(run.reproducible),
                         Choices<Reproducible>{{"setup", Reproducible::setup}, {"strict", Reproducible::strict}},
                         "what the bits of the results may depend on. setup: ranks, threads and micro-batches "
                         "(run.deterministic); strict, on the CPU: only the micro-batch size, an eighth of the global "
                         "batch if train.micro_batch = auto. Gradients are then summed exactly, which needs 16 bytes "
                         "for each parameter, and a rank computes with one thread"));
  add_limits(k);
}

void add_checkpoint_keys(Keys& k) {
  k.push_back(text_key(MR_FIELD(checkpoint.every), "500, 2e, 10m, auto or none",
                       "steps (500), epochs (2e) or time (10m) between checkpoints; auto: the interval that loses the "
                       "least time, by the measured cost of a checkpoint and checkpoint.mtbf (Daly 2006); or none. One "
                       "is always written at the end and when the run is stopped"));
  check_checkpoint_interval(k.back());
  k.push_back(duration_key(MR_FIELD(checkpoint.mtbf), at_least(60),
                           "checkpoint.every = auto: mean time between failures of one host"));
  k.push_back(number_key(MR_FIELD(checkpoint.keep), at_least(1),
                         "number of newest checkpoints that are kept; the best one is kept in addition"));
  k.push_back(choice_key(
      MR_FIELD(checkpoint.best),
      Choices<BestMetric>{{"loss", BestMetric::loss},
                          {"accuracy", BestMetric::accuracy},
                          {"top5", BestMetric::top5},
                          {"macro_f1", BestMetric::macro_f1},
                          {"auc", BestMetric::auc},
                          {"mean_iou", BestMetric::mean_iou},
                          {"mean_dice", BestMetric::mean_dice},
                          {"perplexity", BestMetric::perplexity},
                          {"mae", BestMetric::mae},
                          {"rmse", BestMetric::rmse},
                          {"r2", BestMetric::r2}},
      "metric of the evaluation by which a checkpoint is the best: the lowest loss, perplexity, mae or rmse, or the "
      "highest of the others. It must suit the data. Needs data.valid"));
  k.push_back(switch_key(MR_FIELD(checkpoint.safetensors),
                         "write the weights of each checkpoint also to model.safetensors in run.dir, with PyTorch's "
                         "names, in place of those of the checkpoint before. millrace export does the same later"));
}

void add_log_keys(Keys& k) {
  k.push_back(duration_key(MR_FIELD(log.every), at_least(0), "time between progress lines in a file or pipe"));
  k.push_back(switch_key(MR_FIELD(log.tensorboard), "write TensorBoard events to the folder tensorboard in run.dir"));
  k.push_back(number_key(MR_FIELD(log.tensorboard_every), at_least(1), "steps between two TensorBoard events"));
  k.push_back(text_key(MR_FIELD(log.prometheus), "path",
                       "a file ending in .prom with the current state of the run, for the textfile collector of "
                       "Prometheus' node exporter on the host of rank 0. Each run needs its own file; empty: none"));
  k.push_back(
      duration_key(MR_FIELD(log.prometheus_every), above(0), "shortest time between two writes of log.prometheus"));
  k.push_back(number_key(MR_FIELD(log.profile_steps), between(0, 1000),
                         "number of consecutive steps whose phases, all-reduces and reads are recorded in trace.json, "
                         "for all ranks on one clock. They begin with step 21 if the run is long enough; 0: none"));
  k.push_back(switch_key(MR_FIELD(log.speed_of_light),
                         "measure the arithmetic and memory rates of the machine at the start (at most 0.3 s, kept in "
                         "$XDG_CACHE_HOME/millrace), and show in each progress line how close the steps come to them"));
}

void add_account_keys(Keys& k) {
  k.push_back(switch_key(MR_FIELD(account.probe),
                         "at the end of a run: check the verdict by measuring steps without one of their parts, and "
                         "steps with changed keys; takes half a minute"));
}

void add_test_keys(Keys& k) {
  k.push_back(
      number_key(MR_FIELD(test.force_overflow_at), at_least(-1), "the step whose gradients overflow; -1: none"));
  k.push_back(number_key(MR_FIELD(test.damage_gradient_at), at_least(-1),
                         "the step in which the last rank's reduced gradient gets a wrong value; -1: none"));
  k.push_back(duration_key(MR_FIELD(test.compute_delay), at_least(0),
                           "additional time of each sample, a third of it in the forward pass"));
  k.push_back(duration_key(MR_FIELD(test.all_reduce_delay), at_least(0), "additional time of each all-reduced MB"));
}

}  // namespace millrace
