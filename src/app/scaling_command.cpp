#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/commands.hpp"
#include "millrace/advisor/rules/scaling_model.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/bench/collective.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/report/report.hpp"
#include "millrace/runs/run_folder.hpp"
#include "millrace/train/session/make_compute.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& scaling_flags() {
  static const std::vector<Flag> table = {
      {.name = "ranks",
       .value = "list",
       .help = "numbers of ranks, separated by commas",
       .default_value = "2,4,8,16,32,64,128,256,512,1024"},
      {.name = "link",
       .value = "rate",
       .help = "bandwidth from a node to the others, in each direction: 400Gb/s (bits), 50GB/s (bytes)",
       .default_value = "measured by the run's all-reduces between nodes"},
      {.name = "latency",
       .value = "time",
       .help = "latency of a message between nodes",
       .default_value = "5us with --link"},
      {.name = "ranks-per-node",
       .value = "N",
       .help = "ranks on one node, which share its link",
       .default_value = "as in the run, or as launched with --measure"},
      {.name = "local-link",
       .value = "rate",
       .help = "bandwidth between the ranks of a node",
       .default_value = "measured by the run's all-reduces within a node"},
      {.name = "local-latency",
       .value = "time",
       .help = "latency of a message within a node",
       .default_value = "5us with --local-link"},
      {.name = "messages",
       .value = "tree|ring",
       .help = "algorithm of an all-reduce over p ranks, as messages in sequence: tree 2 log2 p, ring 2 (p - 1)",
       .default_value = "tree"},
      {.name = "efficiency", .value = "share", .help = "parallel efficiency to reach", .default_value = "0.9"},
      {.name = "even",
       .value = "",
       .help = "assume that all ranks take the average step time, without stragglers",
       .arity = Flag::Arity::nothing},
      {.name = "measure",
       .value = "",
       .help = "under mpirun: measure the links with all-reduces of several sizes on these ranks, for a few seconds",
       .arity = Flag::Arity::nothing},
      {.name = "json", .value = "", .help = "print JSON, with all times in seconds", .arity = Flag::Arity::nothing},
  };
  return table;
}

std::vector<int> ranks_of(const ParsedArguments& parsed) {
  return option("ranks", [&] {
    std::vector<int> out;
    std::string text = parsed.get("ranks", scaling_flags().front().default_value) + ",";
    for (std::size_t comma; (comma = text.find(',')) != text.npos; text.erase(0, comma + 1)) {
      const std::string word = text.substr(0, comma);
      out.push_back(parse_number<int>(word));
      between(1, 1 << 24).check(out.back(), word);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  });
}

Account account_of(World& world, const RunFolder& folder) {
  std::string text, problem;
  if (world.rank() == 0) try {
      text = read_file(folder.summary_file());
    } catch (const Error& error) {
      problem = fmt::format("{}. give the folder of a run that has ended", error.what());
    }
  world.agree(Exit::data, problem);
  return parse_account(world.broadcast_string(text), folder.summary_file());
}

// Times of all-reduces, and the ranks that took part.
struct MeasuredAllReduces {
  std::vector<AllReduceTime> times;
  int ranks = 1, nodes = 1;
  std::string from;
};

// With optim.zero = auto, the run decided it.
bool gathers_weights(const Account& account) {
  for (const RankAccount& r : account.ranks)
    for (const CollectiveOpStats& s : r.sums)
      if (s.op == CollectiveOp::all_gather) return true;
  return false;
}

MeasuredAllReduces from_run(const Account& account, bool zero) {
  std::map<std::string, int> hosts;
  for (const RankAccount& r : account.ranks) ++hosts[r.host];
  return {all_reduce_times(account, zero), int(account.ranks.size()), int(hosts.size()),
          "from the run's own all-reduces"};
}

MeasuredAllReduces measure(World& world, const RunConfig& config) {
  if (world.size() < 2)
    fail(Exit::config, "command line: --measure needs at least two ranks. start it with mpirun -n 2 or more");
  ExecutionContext compute = make_execution_context(world, config);
  MeasuredAllReduces out{{},
                         world.size(),
                         world.node_count(),
                         fmt::format("measured on {} ranks of {}{}", world.size(), world.node_count(),
                                     world.node_count() == 1 ? " node" : " nodes")};
  for (const std::size_t bytes : {8u << 10, 64u << 10, 512u << 10, 4u << 20}) {
    const auto rate = bench_all_reduce(world, *compute.collective, {bytes}, 7, false, &*compute.device).front();
    out.times.push_back({double(bytes), rate.seconds});
    if (rate.seconds > 0.1) break;  // all ranks have the same time
  }
  return out;
}

// A number without a unit would be seconds, which is never meant for a latency.
double parse_latency(const std::string& text) {
  const double seconds = parse_seconds(text);
  if (seconds > 0 && text.find_first_not_of("0123456789.") == std::string::npos)
    fail(Exit::config, "'{}' has no unit. write {}us", text, text);
  return seconds;
}

// Rates on the command line take precedence over measured ones. When several nodes were measured, all times count as
// those between nodes. Appends the origin of the rates to `from`.
Interconnect interconnect_of(const ParsedArguments& parsed, const MeasuredAllReduces& measured,
                             Interconnect interconnect, std::string& from) {
  const auto given = [&](const char* rate, const char* latency, LinkModel& link) {
    if (parsed.has(rate)) {
      link = {option(rate, [&] { return parse_rate(parsed.get(rate, "")); }), 5e-6};
      from += fmt::format("{}--{}", from.empty() ? "" : ", ", rate);
    }
    if (parsed.has(latency)) link.latency = option(latency, [&] { return parse_latency(parsed.get(latency, "")); });
  };
  if (!measured.times.empty()) {
    const bool between = measured.nodes > 1;
    (between ? interconnect.inter_node : interconnect.intra_node) =
        fit_link(measured.times, between ? measured.nodes : measured.ranks, interconnect.ring);
    from = measured.from;
  }
  given("link", "latency", interconnect.inter_node);
  given("local-link", "local-latency", interconnect.intra_node);
  return interconnect;
}

bool knows_link_between_nodes(const ParsedArguments& parsed, const MeasuredAllReduces& measured) {
  return parsed.has("link") || (!measured.times.empty() && measured.nodes > 1);
}

void require(const ParsedArguments& parsed, const MeasuredAllReduces& measured, const Interconnect& interconnect,
             int max_ranks) {
  const bool near = parsed.has("local-link") || !measured.times.empty();
  if (max_ranks > interconnect.ranks_per_node && !knows_link_between_nodes(parsed, measured))
    fail(Exit::config,
         "command line: the link between nodes is unknown, and a node has {}{}. give --link, or --measure under mpirun "
         "on several nodes, or --ranks-per-node for ranks on one node",
         interconnect.ranks_per_node, interconnect.ranks_per_node == 1 ? " rank" : " ranks");
  if (max_ranks > 1 && interconnect.ranks_per_node > 1 && !near)
    fail(Exit::config,
         "command line: the link between the ranks of a node is unknown. give --local-link, or --measure under mpirun");
}

// Sets the links of the run and those of the prediction, which come from the run, --measure or the command line.
void set_links(World& world, const ParsedArguments& parsed, const RunConfig& config, const Account& account,
               ScalingForecast& forecast) {
  const MeasuredAllReduces own = from_run(account, forecast.shape.zero),
                           measured = parsed.has("measure") ? measure(world, config) : own;
  Interconnect interconnect;
  interconnect.ring = parsed.get("messages", "tree") == "ring";
  interconnect.ranks_per_node = (own.ranks + own.nodes - 1) / own.nodes;
  std::string ignored;
  forecast.of_run = interconnect_of({}, own, interconnect, ignored);
  if (parsed.has("measure")) interconnect.ranks_per_node = (measured.ranks + measured.nodes - 1) / measured.nodes;
  if (parsed.has("ranks-per-node"))
    interconnect.ranks_per_node = option("ranks-per-node", [&] {
      const std::string text = parsed.get("ranks-per-node", "");
      const int value = parse_number<int>(text);
      between(1, 1024).check(value, text);
      return value;
    });
  if (const int max_ranks = interconnect.ranks_per_node;
      !parsed.has("ranks") && !knows_link_between_nodes(parsed, measured) && max_ranks > 1) {
    std::erase_if(forecast.ranks, [max_ranks](int ranks) { return ranks > max_ranks; });
    log::warn(fmt::format(
        "the link between nodes is unknown: predicting only up to the {} ranks of one node. give --link for more",
        max_ranks));
  }
  forecast.interconnect = interconnect_of(parsed, measured, interconnect, forecast.links);
  require(parsed, measured, forecast.interconnect, forecast.ranks.back());
}

}  // namespace

std::string scaling_help() {
  return "usage: millrace scaling RUN_DIR --ranks 8,64,512 --link 400Gb/s [options]\n"
         "       mpirun -n 2 millrace scaling RUN_DIR --measure [options]\n\n" +
         flags_help(scaling_flags()) +
         "\nRUN_DIR: folder of a run (run.dir) that has ended, on one rank or several. Predicts its step time on more "
         "ranks by\nsimulating its all-reduces: each bucket is ready when it was ready in the run, buckets pass over "
         "the link one after\nanother, and the time that does not overlap with the backward pass is added to the step. "
         "The documentation on\nscaling has the formulas and assumptions.\n";
}

Exit scaling_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, scaling_flags(), false);
  if (parsed.positional.size() != 1)
    fail(Exit::config, "command line: name one run: millrace scaling RUN_DIR --ranks 8,64");
  const RunFolder folder(parsed.positional.front());
  ScalingForecast forecast;
  forecast.ranks = ranks_of(parsed);
  forecast.efficiency = option("efficiency", [&] {
    const std::string text = parsed.get("efficiency", "0.9");
    const double value = parse_number<double>(text);
    between(0.01, 0.999).check(value, text);
    return value;
  });
  const std::string messages = parsed.get("messages", "tree");
  if (messages != "tree" && messages != "ring")
    fail(Exit::config, "command line: --messages: '{}' must be tree or ring", messages);

  const Account account = account_of(world, folder);
  if (world.rank() == 0 && folder.summary_is_outdated())
    log::warn(fmt::format(
        "{} is from an earlier launch of the run than run.json and config.cfg: the prediction uses its account",
        folder.summary_file().string()));
  parsed.flags["config"] = {folder.config_file().string()};
  const RunConfig config = load_config(world, parsed);
  StepProfile& shape = forecast.shape = [&] {
    try {
      return step_profile_of(account);
    } catch (const Error& error) {
      fail(error.code(), "{}: {}", folder.summary_file().string(), error.what());
    }
  }();
  shape.bucket_bytes = double(config.comm.bucket_size);
  shape.overlap = config.comm.overlap;
  shape.element_bytes = double(size_of(config.comm.grad_dtype));
  shape.weight_bytes = int(size_of(dtype_of(config.run.precision)));
  shape.zero = config.optim.zero == 1 || gathers_weights(account);
  shape.fixed_micro_batch = config.train.micro_batch > 0;

  if (parsed.has("even")) shape.own.clear();

  set_links(world, parsed, config, account, forecast);
  print(world, parsed.has("json") ? report_json(forecast) : report(forecast));
  return Exit::ok;
}

}  // namespace millrace::app
