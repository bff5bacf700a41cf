#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "millrace/base/units.hpp"
#include "millrace/roofline/cuda_fusion.hpp"
#include "millrace/roofline/step_time.hpp"

namespace millrace::roofline {
namespace {

using nlohmann::json;

struct Column {
  int fusion;
  StepTime time;
};

std::vector<Column> columns_of(const TrainingStep& step, const GpuModel& gpu) {
  std::vector<Column> out;
  for (int level = 0; level <= CudaFusionRules().max_fusion_level(); ++level)
    out.push_back({level, predict(passes_of(step, level), step, gpu)});
  return out;
}

std::string bound(const PassTotal& t) {
  const double work = t.memory_seconds + t.compute_seconds;
  if (t.gap_seconds > work) return "launches";
  const bool memory = t.memory_seconds >= t.compute_seconds;
  const double part = (memory ? t.memory_seconds : t.compute_seconds) / work;
  const char* name = memory ? "memory" : "compute";
  return part > 0.95 ? name : fmt::format("{} {:.0f} %", name, 100 * part);
}

// The units of a table, so that the numbers of small networks can be read too.
struct Unit {
  double size;
  const char* name;
};
struct Units {
  Unit bytes, flops, time;
};
Units units_of(const StepTime& time) {
  return {time.passes.bytes >= 1e9 ? Unit{1e9, "GB"} : Unit{1e6, "MB"},
          time.passes.flops >= 1e9 ? Unit{1e9, "GFLOP"} : Unit{1e6, "MFLOP"},
          time.seconds() >= 1e-3 ? Unit{1e-3, "ms"} : Unit{1e-6, "us"}};
}

std::string row(const char* name, const PassTotal& t, double step_seconds, const Units& units) {
  return fmt::format("  {:<26} {:>8} {:9.3f} {:10.1f} {:9.3f} {:>7.1f} %  {:<12} {:9.3f}\n", name, t.launches,
                     t.bytes / units.bytes.size, t.flops / units.flops.size, t.seconds / units.time.size,
                     100 * t.seconds / step_seconds, bound(t), t.ideal_seconds / units.time.size);
}

std::string pass_table(const StepTime& time, const Units& units) {
  std::string out =
      fmt::format("  {:<26} {:>8} {:>9} {:>10} {:>9} {:>9}  {:<12} {:>9}\n", "pass", "launches", units.bytes.name,
                  units.flops.name, units.time.name, "share", "bound by", fmt::format("ideal {}", units.time.name));
  for (int k = 0; k < pass_kinds; ++k)
    if (const PassTotal& t = time.kinds[std::size_t(k)]; t.launches > 0)
      out += row(name_of(PassKind(k)), t, time.seconds(), units);
  if (time.link_seconds > 0)
    out += fmt::format("  {:<46} {:19.3f} {:>7.1f} %  NVLink\n", "collectives, exposed",
                       time.exposed_seconds / units.time.size, 100 * time.exposed_seconds / time.seconds());
  PassTotal all = time.passes;
  all.seconds = time.seconds();
  return out + row("sum", all, time.seconds(), units);
}

std::string level_table(const std::vector<Column>& columns, double samples, const Units& units) {
  std::string out = fmt::format("  {:<26}", units.bytes.name);
  for (const Column& c : columns) out += fmt::format("    level {}", c.fusion);
  out += "\n";
  const auto line = [&](const std::string& name, int digits, const auto& value) {
    out += fmt::format("  {:<26}", name);
    for (const Column& c : columns) out += fmt::format(" {:10.{}f}", double(value(c.time)), digits);
    out += "\n";
  };
  for (int k = 0; k < pass_kinds; ++k) {
    double most = 0;
    for (const Column& c : columns) most = std::max(most, c.time.kinds[std::size_t(k)].bytes);
    if (most > 0)
      line(name_of(PassKind(k)), 3,
           [&, k](const StepTime& t) { return t.kinds[std::size_t(k)].bytes / units.bytes.size; });
  }
  const std::string time = units.time.name;
  line("sum", 3, [&](const StepTime& t) { return t.passes.bytes / units.bytes.size; });
  line("launches", 0, [](const StepTime& t) { return t.passes.launches; });
  line(time + ", predicted", 3, [&](const StepTime& t) { return t.seconds() / units.time.size; });
  line("samples/s, predicted", 0, [=](const StepTime& t) { return samples / t.seconds(); });
  line(time + ", ideal", 3, [&](const StepTime& t) { return t.passes.ideal_seconds / units.time.size; });
  line("samples/s, ideal", 0, [=](const StepTime& t) { return samples / t.passes.ideal_seconds; });
  return out;
}

std::string sizes(const TrainingStep& step) {
  std::string out;
  for (const MicroBatches& m : step.micro_batches)
    out += fmt::format("{}{} of {} samples", out.empty() ? "" : ", ", m.count, m.graph.rows);
  return out;
}

std::string collectives(const TrainingStep& step, const StepTime& time, const GpuModel& gpu) {
  const Communication& c = step.communication;
  if (c.collectives == 0) return "";
  const std::string sent =
      fmt::format("{} collectives; a rank sends {:.3f} GB", c.collectives, (c.reduce_bytes + c.gather_bytes) * 1e-9);
  if (gpu.nvlink <= 0) return sent + ". the GPU's nvlink rate is not given, so their time is not in the table\n";
  return sent +
         fmt::format(" over NVLink in {:.3f} ms, of which {:.3f} ms are exposed. other links: millrace scaling\n",
                     time.link_seconds * 1e3, time.exposed_seconds * 1e3);
}

std::string assumptions(const StepDescription& about, const GpuModel& gpu) {
  std::string out = fmt::format(
      "ideal: data-sheet rates, no gaps, no collectives. predicted: {:.0f} % of the memory bandwidth, {:.0f} % of the "
      "product rate, {:.1f} us before each launch.\nassumed: each call of cuDNN is one kernel, and tensors come from "
      "memory, not from caches. levels 2 and 3 follow rules; cuDNN and cuda.autotune may fuse less.\n",
      100 * gpu.memory_efficiency, 100 * gpu.tensor_efficiency, gpu.launch_gap * 1e6);
  for (const std::string& note : about.notes) out += note + "\n";
  return out;
}

}  // namespace

std::string report(const TrainingStep& step, const StepDescription& about, const GpuModel& gpu) {
  const DType factors = step.micro_batches.front().graph.dtype;
  const auto columns = columns_of(step, gpu);
  const StepTime time = predict(passes_of(step, about.level), step, gpu);
  const double samples = double(step.global_batch);
  const Units units = units_of(time);
  return fmt::format(
             "a training step on {} ({}, {}FLOP/s in {}): a prediction, no GPU has confirmed it\n{} in {}, fusion "
             "level {}, global batch {} on {} {}; micro-batches of a rank: {}\n\n",
             gpu.name, format_rate(gpu.memory_bandwidth), format_count(gpu.product_rate(factors, step.tf32)),
             about.precision, about.network, about.precision, about.level, step.global_batch, about.ranks,
             about.ranks == 1 ? "rank" : "ranks", sizes(step)) +
         pass_table(time, units) +
         fmt::format("  predicted: {} per step, {:.0f} samples/s; ideal: {}, {:.0f} samples/s\n",
                     format_seconds(time.seconds()), samples / time.seconds(),
                     format_seconds(time.passes.ideal_seconds), samples / time.passes.ideal_seconds) +
         collectives(step, time, gpu) + "\nby fusion level:\n" + level_table(columns, samples, units) + "\n" +
         assumptions(about, gpu);
}

namespace {

json to_json(const PassTotal& t) {
  return {{"launches", t.launches},
          {"bytes", t.bytes},
          {"flops", t.flops},
          {"seconds", t.seconds},
          {"memory_seconds", t.memory_seconds},
          {"compute_seconds", t.compute_seconds},
          {"gap_seconds", t.gap_seconds},
          {"ideal_seconds", t.ideal_seconds}};
}

json to_json(const GpuModel& gpu) {
  return {{"name", gpu.name},
          {"memory_bandwidth", gpu.memory_bandwidth},
          {"fp16", gpu.fp16},
          {"bf16", gpu.bf16},
          {"tf32", gpu.tf32},
          {"fp32", gpu.fp32},
          {"nvlink", gpu.nvlink},
          {"launch_gap", gpu.launch_gap},
          {"memory_efficiency", gpu.memory_efficiency},
          {"tensor_efficiency", gpu.tensor_efficiency},
          {"link_efficiency", gpu.link_efficiency},
          {"multiprocessors", gpu.multiprocessors},
          {"shared_memory", gpu.shared_memory}};
}

json to_json(const Column& column, double samples) {
  const StepTime& time = column.time;
  json passes = json::object();
  for (int k = 0; k < pass_kinds; ++k)
    if (const PassTotal& t = time.kinds[std::size_t(k)]; t.launches > 0) passes[json_key(PassKind(k))] = to_json(t);
  return {{"fusion", column.fusion},
          {"passes", passes},
          {"sum", to_json(time.passes)},
          {"link_seconds", time.link_seconds},
          {"exposed_seconds", time.exposed_seconds},
          {"step_seconds", time.seconds()},
          {"samples_per_second", samples / time.seconds()},
          {"ideal_samples_per_second", samples / time.passes.ideal_seconds}};
}

}  // namespace

std::string report_json(const TrainingStep& step, const StepDescription& about, const GpuModel& gpu) {
  const Communication& c = step.communication;
  json out{
      {"gpu", to_json(gpu)},
      {"network", about.network},
      {"precision", about.precision},
      {"fusion", about.level},
      {"ranks", about.ranks},
      {"samples", step.global_batch},
      {"collectives", {{"count", c.collectives}, {"reduce_bytes", c.reduce_bytes}, {"gather_bytes", c.gather_bytes}}},
      {"notes", about.notes}};
  out["micro_batches"] = out["levels"] = json::array();
  for (const MicroBatches& m : step.micro_batches)
    out["micro_batches"].push_back({{"rows", m.graph.rows}, {"count", m.count}});
  for (const Column& column : columns_of(step, gpu))
    out["levels"].push_back(to_json(column, double(step.global_batch)));
  return out.dump(2) + "\n";
}

}  // namespace millrace::roofline
