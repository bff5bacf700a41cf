// Batched inference: the network of a checkpoint computes every sample of a data set, on all ranks.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <utility>

#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/in_background.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/system/signals.hpp"
#include "millrace/train/commands.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/evaluate.hpp"
#include "train/prediction_file.hpp"
#include "train/prediction_outputs.hpp"
#include "train/resume.hpp"

namespace millrace {
namespace {

// Where the time of this rank went, in seconds.
struct PredictionTime {
  double waiting = 0;    // for data
  double computing = 0;  // and copying results to the host
  double writing = 0;    // waiting for the rows of an earlier batch to be written, and for the disk at the end
  double ranks = 0;      // waiting for ranks with more to do
};

// Results of fewer bytes are converted and written before a thread for it would have started.
constexpr std::size_t background_bytes = 256u << 10;

// While the device computes a batch, a thread converts and writes the results of the batch before, if they are large.
class Predictor {
 public:
  Predictor(Session&, Network&, const std::vector<PredictionOutput>&, PredictionFile&);
  ~Predictor() {
    if (pending_.valid()) pending_.wait();
  }
  void run();  // all of the data, and finishes the file. Collective
  const PredictionTime& time() const { return time_; }
  std::int64_t not_finite() const { return not_finite_; }  // results of this rank

 private:
  void copy_results(std::int64_t rows);
  void await_writing();
  void tell(std::int64_t samples);
  std::int64_t write(int turn, const MicroBatch&);

  Session& s_;
  Network& network_;
  const std::vector<PredictionOutput>& outputs_;
  PredictionFile& file_;
  LoaderOptions options_;
  DeviceSlots slots_;
  BatchForward forward_;
  // By output: results as float32 on the device, if the network computes in 16 bits, and on the host, for two batches.
  std::vector<Buffer> converted_;
  std::array<std::vector<Buffer>, 2> results_;
  int turn_ = 0;
  std::size_t row_bytes_ = 0;              // results of a sample
  std::vector<std::vector<char>> arrays_;  // what is written of a batch, by data set; for the thread
  std::future<std::int64_t> pending_;
  PredictionTime time_;
  std::int64_t not_finite_ = 0;
  const double began_ = steady_seconds();
  double told_ = began_;
};

Predictor::Predictor(Session& s, Network& network, const std::vector<PredictionOutput>& outputs, PredictionFile& file)
    : s_(s),
      network_(network),
      outputs_(outputs),
      file_(file),
      options_(s.loader_options()),
      slots_(*s.compute.device, s.data.valid, options_.max_rows, std::size_t(options_.device_slots)),
      forward_(*s.compute.device, network, "prediction") {
  const std::size_t rows = std::size_t(options_.max_rows);
  for (const PredictionOutput& output : outputs_) {
    const std::size_t row_bytes = std::size_t(output.result.count()) * sizeof(float), bytes = rows * row_bytes;
    row_bytes_ += row_bytes;
    for (auto& of_turn : results_) of_turn.emplace_back(*s.compute.device, MemoryKind::pinned, bytes);
    if (s.spec.compute != DType::f32) converted_.emplace_back(*s.compute.device, MemoryKind::device, bytes);
    for (const PredictionArray& array : output.arrays) arrays_.emplace_back(rows * array.bytes());
  }
}

void Predictor::copy_results(std::int64_t rows) {
  Device& device = *s_.compute.device;
  const Program& program = network_.eval_program(rows);
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const Tensor& result = program.value(outputs_[o].value);
    const void* from = result.data;
    if (result.dtype != DType::f32) {
      s_.compute.backend->convert(converted_[o].data(), DType::f32, from, result.dtype, result.count());
      from = converted_[o].data();
    }
    const std::size_t bytes = std::size_t(result.count()) * sizeof(float);
    device.copy_to_host(Stream::compute, results_[std::size_t(turn_)][o].data(), from, bytes);
  }
  device.synchronize();
}

// Returns how many results are not finite.
std::int64_t Predictor::write(int turn, const MicroBatch& item) {
  std::int64_t not_finite = 0;
  std::size_t first = 0;  // data set of this output
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const PredictionOutput& output = outputs_[o];
    const auto values = std::size_t(item.rows * output.result.count());
    std::vector<char*> to;
    for (std::size_t a = 0; a < output.arrays.size(); ++a) to.push_back(arrays_[first + a].data());
    not_finite += output.fill({results_[std::size_t(turn)][o].as<float>(), values}, to);
    for (std::size_t a = 0; a < output.arrays.size(); ++a) file_.write(first + a, item.first, item.rows, to[a]);
    first += output.arrays.size();
  }
  if (s_.data.valid.selection) {
    std::vector<std::int64_t> samples(std::size_t(item.rows));
    s_.batching.valid_order->ids(item, samples.data());
    file_.write(first, item.first, item.rows, reinterpret_cast<const char*>(samples.data()));
  }
  return not_finite;
}

void Predictor::await_writing() {
  const watchdog::WaitScope waits(watchdog::Wait::file);
  if (pending_.valid()) not_finite_ += pending_.get();
}

// samples: of all ranks, about.
void Predictor::tell(std::int64_t samples) {
  const double now = steady_seconds();
  if (samples == 0 || now - told_ < s_.config.log.every) return;
  told_ = now;
  const double all = double(s_.data.valid.selected_rows());
  log::info(fmt::format("{} of {} samples, {} left", samples, s_.data.valid.selected_rows(),
                        format_seconds((now - began_) * (all / double(samples) - 1))));
}

void Predictor::run() {
  const watchdog::PartScope part(watchdog::Part::evaluation);
  network_.complete_weights();
  network_.write_step(0);
  network_.push_step(0);
  Loader loader(*s_.compute.device, *s_.data.valid_source, s_.data.valid, *s_.batching.valid_order, options_,
                s_.valid_micro_batches(), &slots_);
  double now = steady_seconds();
  const auto lap = [&now](double& part_of_time) {
    const double before = std::exchange(now, steady_seconds());
    part_of_time += now - before;
  };
  const auto next = [&] {
    const watchdog::WaitScope waits(watchdog::Wait::file);
    return loader.next();
  };
  while (const Batch* batch = next()) {
    lap(time_.waiting);
    if (stop_signal()) fail(Exit::stopped, "stopped by a signal, without a file. start again to predict");
    forward_.run(*batch);
    copy_results(batch->item.rows);
    lap(time_.computing);
    await_writing();
    if (std::size_t(batch->item.rows) * row_bytes_ < background_bytes)
      not_finite_ += write(turn_, batch->item);
    else
      pending_ = in_background([this, turn = turn_, item = batch->item] { return write(turn, item); });
    turn_ = 1 - turn_;
    lap(time_.writing);
    tell(batch->item.first);
  }
  lap(time_.waiting);
  await_writing();
  lap(time_.writing);
  s_.world.barrier();
  lap(time_.ranks);
  file_.finish();
  lap(time_.writing);
}

// The configuration of the run, for a pass over other data without labels.
RunConfig prediction_config(RunConfig config, const CheckpointModel& model) {
  if (!model.record)
    fail(Exit::config, "{} was written by a version that did not store its model. evaluate it with -c, or train again",
         model.path.string());
  if (config.data.sample == SampleKind::tokens)
    fail(Exit::config,
         "{} is a model of tokens (data.sample = tokens), of which predict writes nothing. use millrace generate",
         model.path.string());
  if (config.data.on_error == OnError::skip)
    log::info("data.on_error = skip: a prediction needs every sample, so one that cannot be read ends it");
  config.data.on_error = OnError::stop;
  const bool part = config.data.splits() && config.data.valid.empty();
  if (!part) config.data.train.clear();
  // Of scenes, y says which pixels are samples; a split may need the labels.
  if (config.data.sample != SampleKind::patch && !part) {
    config.data.y.clear();
    config.data.ignore_label = ignore_label_from_files;
  }
  config.data.holdout = 0;
  config.data.cache = {};  // every sample is read once
  config.train.balance = "even";
  return config;
}

std::string name_of_arrays(const std::vector<PredictionOutput>& outputs) {
  std::string out;
  for (const PredictionOutput& output : outputs)
    for (const PredictionArray& array : output.arrays)
      out +=
          fmt::format("{}{}{}", out.empty() ? "" : ", ", array.name, array.row.rank > 0 ? " " + array.row.str() : "");
  return out;
}

// Collective.
void report(Session& s, const Predictor& predictor, double seconds, const std::string& what) {
  const PredictionTime& mine = predictor.time();
  // Ranks do not begin at the same moment, so each one's parts are shares of its own time.
  std::array<double, 6> sums{mine.waiting, mine.computing, mine.writing,
                             mine.ranks,   seconds,        double(predictor.not_finite())};
  std::array<double, 1> longest{seconds};
  s.world.all_reduce(sums, World::Reduce::sum);
  s.world.all_reduce(longest, World::Reduce::max);
  seconds = longest[0];
  if (sums[5] > 0)
    log::warn(
        fmt::format("{:.0f} results of the network are not finite. look at the data, or at the training", sums[5]));
  if (s.world.rank() != 0) return;
  std::string parts;
  double other = 100;
  const std::array names{"waiting for data", "computing", "writing", "waiting for other ranks"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double percent = sums[i] / sums[4] * 100;
    parts += fmt::format("{} {:.0f} %, ", names[i], percent);
    other -= percent;
  }
  const std::int64_t rows = s.data.valid.selected_rows();
  std::printf("%s\n%s\n", what.c_str(),
              fmt::format("{} samples in {}, {} samples/s: {}other {:.0f} %", rows, format_seconds(seconds),
                          format_count(double(rows) / seconds), parts, std::max(0.0, other))
                  .c_str());
  std::fflush(stdout);
}

}  // namespace

Exit predict(World& world, const RunConfig& given, const CheckpointChoice& choice, const PredictOptions& options) {
  const PredictionTarget target{options.output, options.overwrite};
  check_prediction_target(world, target);
  const CheckpointModel model = find_checkpoint(world, choice);
  const RunConfig config = prediction_config(given, model);
  require_same_function(model, config);
  Session s(world, config, Session::Use::evaluate, &*model.record);
  const NetworkSpec whole = s.spec;
  const auto outputs = prediction_outputs(s, graph_of(whole, 1, Mode::infer), options);
  std::vector<PredictionArray> arrays;
  for (const PredictionOutput& output : outputs) {
    s.spec.outputs.push_back(output.value);
    arrays.insert(arrays.end(), output.arrays.begin(), output.arrays.end());
  }
  if (s.data.valid.selection) arrays.push_back(sample_numbers());
  s.spec.weighted_loss = false;  // there is no loss
  Network network(s.compute, s.spec, plan_within_memory(s));
  CheckpointStore store(world, s.compute, model.path.parent_path(), 1);
  const RunState run = choice.which == "newest" ? store.load_newest(network).value()
                                                : load_model(world, s.compute, whole, network, model);
  const auto file = make_prediction_file(world, target, s.data.valid.selected_rows(), std::move(arrays), run.step);
  const double began = steady_seconds();
  try {
    Predictor predictor(s, network, outputs, *file);
    predictor.run();
    report(s, predictor, steady_seconds() - began,
           fmt::format("step {}: predictions in {}: {}", run.step, options.output, name_of_arrays(outputs)));
  } catch (...) {  // nothing is unwound when the program ends by an exception
    file->discard();
    throw;
  }
  return Exit::ok;
}

}  // namespace millrace
