#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "millrace/advisor/rules/scaling_model.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/bench/collective.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/report/report.hpp"
#include "millrace/runs/run.hpp"
#include "millrace/train/session/make_compute.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      {.name = "ranks",
       .value = "list",
       .help = "numbers of ranks, with commas",
       .default_value = "2,4,8,16,32,64,128,256,512,1024"},
      {.name = "link",
       .value = "rate",
       .help = "of a node to the others, each way: 400Gb/s (bits), 50GB/s (bytes)",
       .default_value = "as sums between the run's nodes were"},
      {.name = "latency", .value = "time", .help = "of a message between nodes", .default_value = "5us with --link"},
      {.name = "ranks-per-node",
       .value = "N",
       .help = "ranks that share a node and its link",
       .default_value = "the run's; those that --measure is started on"},
      {.name = "local-link",
       .value = "rate",
       .help = "between the ranks of a node",
       .default_value = "as sums inside of the run's nodes were"},
      {.name = "local-latency",
       .value = "time",
       .help = "of a message inside of a node",
       .default_value = "5us with --local-link"},
      {.name = "messages",
       .value = "tree|ring",
       .help = "one after the other in a sum of p: 2 log2 p, or 2 (p - 1)",
       .default_value = "tree"},
      {.name = "efficiency", .value = "share", .help = "that is asked for", .default_value = "0.9"},
      {.name = "even",
       .value = "",
       .help = "all ranks take as long as they did on average, none longer",
       .arity = Flag::Arity::nothing},
      {.name = "measure",
       .value = "",
       .help = "under mpirun: takes the links from sums of several sizes on these ranks, a few seconds",
       .arity = Flag::Arity::nothing},
      {.name = "json", .value = "", .help = "print JSON; all times in seconds", .arity = Flag::Arity::nothing},
  };
  return table;
}

std::vector<int> ranks_of(const ParsedArguments& parsed) {
  return option("ranks", [&] {
    std::vector<int> out;
    std::string text = parsed.get("ranks", flags().front().default_value) + ",";
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

Account account_of(World& world, const std::filesystem::path& path) {
  std::string text, problem;
  if (world.rank() == 0) try {
      text = read_file(path);
    } catch (const Error& error) {
      problem = cat(error.what(), ". name the folder of a run that has ended");
    }
  world.agree(Exit::data, problem);
  text = world.broadcast_string(text);
  try {
    return Account::from_json(nlohmann::json::parse(text).at("account").dump());
  } catch (const nlohmann::json::exception& error) {
    fail(Exit::data, path.string(), ": this is no summary of a run (", error.what(), ")");
  }
}

// Sums that were measured, and between whom.
struct Sums {
  std::vector<AllReduceTime> times;
  int ranks = 1, nodes = 1;
  std::string from;
};

Sums of_the_run(const Account& account, bool zero) {
  std::map<std::string, int> hosts;
  for (const RankAccount& r : account.ranks) ++hosts[r.host];
  return {all_reduce_times(account, zero), int(account.ranks.size()), int(hosts.size()), "from the run's own sums"};
}

Sums measured(World& world, const RunConfig& config) {
  if (world.size() < 2)
    fail(Exit::config, "command line: --measure on one rank has nothing to sum. start it by mpirun -n 2 or more");
  ExecutionContext compute = make_execution_context(world, config);
  Sums out{{},
           world.size(),
           world.node_count(),
           cat("measured on ", world.size(), " ranks of ", world.node_count(),
               world.node_count() == 1 ? " node" : " nodes")};
  for (const std::size_t bytes : {8u << 10, 64u << 10, 512u << 10, 4u << 20}) {
    const auto rate = bench_all_reduce(world, *compute.collective, {bytes}, 7, false, &*compute.device).front();
    out.times.push_back({double(bytes), rate.seconds});
    if (rate.seconds > 0.1) break;  // the same on all ranks
  }
  return out;
}

// A bare number would be seconds, which no message takes.
double parse_latency(const std::string& text) {
  const double seconds = parse_seconds(text);
  if (seconds > 0 && text.find_first_not_of("0123456789.") == std::string::npos)
    fail(Exit::config, "'", text, "' has no unit. like ", text, "us");
  return seconds;
}

// What is given wins. Where nodes of several ranks were measured, all of it counts as between nodes.
Interconnect interconnect_of(const ParsedArguments& parsed, const Sums& sums, Interconnect interconnect,
                             std::string& from) {
  const auto given = [&](const char* rate, const char* latency, LinkModel& link) {
    if (parsed.has(rate))
      link = {option(rate, [&] { return parse_rate(parsed.get(rate, "")); }), 5e-6},
      from += cat(from.empty() ? "" : ", ", "--", rate);
    if (parsed.has(latency)) link.latency = option(latency, [&] { return parse_latency(parsed.get(latency, "")); });
  };
  if (!sums.times.empty()) {
    const bool between = sums.nodes > 1;
    (between ? interconnect.inter_node : interconnect.intra_node) =
        fit_link(sums.times, between ? sums.nodes : sums.ranks, interconnect.ring);
    from = sums.from;
  }
  given("link", "latency", interconnect.inter_node), given("local-link", "local-latency", interconnect.intra_node);
  return interconnect;
}

bool knows_far(const ParsedArguments& parsed, const Sums& sums) {
  return parsed.has("link") || (!sums.times.empty() && sums.nodes > 1);
}

void require(const ParsedArguments& parsed, const Sums& sums, const Interconnect& interconnect, int most) {
  const bool near = parsed.has("local-link") || !sums.times.empty();
  if (most > interconnect.ranks_per_node && !knows_far(parsed, sums))
    fail(Exit::config, "command line: nothing is known of the link between nodes of ", interconnect.ranks_per_node,
         interconnect.ranks_per_node == 1 ? " rank" : " ranks",
         ". give --link, or --measure under mpirun on several nodes, or --ranks-per-node for ranks that share one");
  if (most > 1 && interconnect.ranks_per_node > 1 && !near)
    fail(Exit::config,
         "command line: nothing is known of the link between the ranks of a node. give --local-link, or "
         "--measure under mpirun");
}

}  // namespace

std::string scaling_help() {
  return "usage: millrace predict RUN_DIR --ranks 8,64,512 --link 400Gb/s [options]\n"
         "       mpirun -n 2 millrace predict RUN_DIR --measure [options]\n\n" +
         flags_help(flags()) +
         "\nRUN_DIR: the folder of a run that has ended, of one rank or several. Its steps are simulated with the sums "
         "of\n"
         "more ranks: buckets come when they came in the run, go over the link one after the other, and what the\n"
         "backward pass does not hide is added. docs/scaling.md has the formulas and what is assumed.\n";
}

Exit scaling_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, flags(), false);
  if (parsed.positional.size() != 1)
    fail(Exit::config, "command line: name one run: millrace predict RUN_DIR --ranks 8,64");
  const std::filesystem::path folder = parsed.positional.front();
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
    fail(Exit::config, "command line: --messages: '", messages, "' is none of tree|ring");

  const Account account = account_of(world, folder / "summary.json");
  if (world.rank() == 0 && summary_is_outdated(folder))
    log::warn(
        cat((folder / "summary.json").string(),
            " is of an earlier start of the run than run.json and config.cfg: the prediction goes by its account"));
  parsed.flags["config"] = {(folder / "config.cfg").string()};
  const RunConfig config = load_config(world, parsed);
  StepProfile& shape = forecast.shape = [&] {
    try {
      return step_profile_of(account);
    } catch (const Error& error) {
      fail(error.code(), (folder / "summary.json").string(), ": ", error.what());
    }
  }();
  shape.bucket_bytes = double(config.comm.bucket), shape.overlap = config.comm.overlap;
  shape.element_bytes = config.comm.grad_dtype == "none" ? 4 : 2;
  shape.zero = config.optim.zero == 1, shape.fixed_micro_batch = config.train.micro_batch > 0;

  if (parsed.has("even")) shape.own.clear();

  const Sums own = of_the_run(account, shape.zero), sums = parsed.has("measure") ? measured(world, config) : own;
  Interconnect interconnect;
  interconnect.ring = messages == "ring";
  interconnect.ranks_per_node = (own.ranks + own.nodes - 1) / own.nodes;
  std::string ignored;
  forecast.of_run = interconnect_of({}, own, interconnect, ignored);
  if (parsed.has("measure")) interconnect.ranks_per_node = (sums.ranks + sums.nodes - 1) / sums.nodes;
  if (parsed.has("ranks-per-node"))
    interconnect.ranks_per_node = option("ranks-per-node", [&] {
      const std::string text = parsed.get("ranks-per-node", "");
      const int value = parse_number<int>(text);
      between(1, 1024).check(value, text);
      return value;
    });
  if (const int most = interconnect.ranks_per_node; !parsed.has("ranks") && !knows_far(parsed, sums) && most > 1) {
    std::erase_if(forecast.ranks, [most](int ranks) { return ranks > most; });
    log::warn(cat("nothing is known of the link between nodes: up to the ", most, " ranks of one. --link tells it"));
  }
  forecast.interconnect = interconnect_of(parsed, sums, interconnect, forecast.links);
  require(parsed, sums, forecast.interconnect, forecast.ranks.back());
  print(world, parsed.has("json") ? report_json(forecast) : report(forecast));
  return Exit::ok;
}

}  // namespace millrace::app
