// Reader engines with names, for tests that compare them.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace::test {

struct Engine {
  std::string name;
  std::function<std::unique_ptr<Source>(const ShardIndex&)> make;
};

inline Engine unbuffered(const std::string& name, const MakeAsyncReads& reads) {
  return {name, [reads](const ShardIndex& d) { return make_uring_source(d, "", reads); }};
}

// Engines that work on every machine. io_uring is not among them: its results are like those of the threads.
inline std::vector<Engine> portable_engines() {
  return {{"direct", [](const ShardIndex& d) { return make_direct_source(d, ""); }},
          {"mmap", [](const ShardIndex& d) { return make_mmap_source(d, ""); }},
          unbuffered("threads", [](auto) { return make_pooled_reads(3); })};
}

}  // namespace millrace::test
