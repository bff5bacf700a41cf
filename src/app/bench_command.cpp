#include "arguments.hpp"

namespace millrace::app {
namespace {

struct Bench {
  const char* name;
  const char* summary;
  Exit (*run)(World&, const Arguments&);
};

Exit not_yet(World&, const Arguments&) { fail(Exit::config, "this bench is not available in this version"); }

const Bench benches[] = {
    {"loader", "random samples from the page cache against bare reads", not_yet},
    {"comm", "sums over ranks at many sizes", not_yet},
    {"step", "one training step against the sum of its operations: bench step -c FILE", not_yet},
};

}  // namespace

std::string bench_help() {
  std::string out = "usage: millrace bench NAME [options]\n\n";
  for (const Bench& bench : benches)
    out += cat("  ", bench.name, std::string(8 - std::string(bench.name).size(), ' '), bench.summary, "\n");
  return out;
}

Exit bench_command(World& world, const Arguments& arguments) {
  for (const Bench& bench : benches)
    if (!arguments.empty() && arguments.front() == bench.name)
      return bench.run(world, Arguments(arguments.begin() + 1, arguments.end()));
  fail(Exit::config, "command line: ", arguments.empty() ? "no bench named" : "'" + arguments.front() + "' is no bench",
       ". one of loader, comm, step");
}

}  // namespace millrace::app
