// docs/layers.txt against every #include of src/ and include/.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

struct Rule {
  Names rooms, libraries;
};

const fs::path root = MILLRACE_SOURCE_DIR;

Names words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::map<std::string, Rule> read_rules() {
  std::map<std::string, Rule> rules;
  std::ifstream in(root / "docs/layers.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto colon = line.find(':'), bar = line.find('|');
    rules[*words(line.substr(0, colon)).begin()] = {words(line.substr(colon + 1, bar - colon - 1)),
                                                    words(line.substr(bar + 1))};
  }
  return rules;
}

// The third-party library of a header, "" for the C and C++ libraries and the system.
std::string library_of(const std::string& header) {
  static const std::pair<std::regex, const char*> known[] = {
      {std::regex("zlib\\.h"), "zlib"},
      {std::regex("szlib\\.h|libaec\\.h"), "szip"},
      {std::regex("lz4.*\\.h"), "lz4"},
      {std::regex("zstd.*\\.h"), "zstd"},
      {std::regex("blosc\\.h"), "blosc"},
      {std::regex("liburing\\.h"), "uring"},
      {std::regex("png.*\\.h"), "png"},
      {std::regex("jpeglib\\.h|jerror\\.h"), "jpeg"},
      {std::regex("mpi\\.h|mpi-ext\\.h"), "mpi"},
      {std::regex("omp\\.h"), "omp"},
      {std::regex("H5.*|hdf5.*"), "hdf5"},
      {std::regex("(oneapi/)?dnnl.*"), "onednn"},
      {std::regex("nlohmann/.*"), "nlohmann"},
      {std::regex("boost/.*"), "boost"},
      {std::regex("cublas.*"), "cublas"},
      {std::regex("cudnn.*"), "cudnn"},
      {std::regex("nccl.*"), "nccl"},
      {std::regex("cuda.*|cupti.*|cooperative_groups.*|mma\\.h|cub/.*|curand.*|nvToolsExt.*|nvtx3/.*"), "cuda"},
  };
  for (const auto& [pattern, name] : known)
    if (std::regex_match(header, pattern)) return name;
  return header.find('/') == header.npos || header.rfind("sys/", 0) == 0 || header.rfind("linux/", 0) == 0
             ? ""
             : "unknown (" + header + ")";
}

struct Include {
  std::string file, room, header;
};

std::vector<Include> read_includes() {
  std::vector<Include> out;
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  for (const char* folder : {"src", "include/millrace"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!std::set<std::string>{".cpp", ".hpp", ".cu", ".cuh", ".h"}.count(entry.path().extension())) continue;
      const auto inside = fs::relative(entry.path(), root / folder);
      std::ifstream in(entry.path());
      std::smatch match;
      for (std::string line; std::getline(in, line);)
        if (std::regex_search(line, match, pattern))
          out.push_back({fs::relative(entry.path(), root).string(), inside.begin()->string(), match[1]});
    }
  return out;
}

TEST(Layers, EveryIncludeIsAllowed) {
  const auto rules = read_rules();
  const auto includes = read_includes();
  ASSERT_GT(includes.size(), 100u);
  for (const auto& [file, room, header] : includes) {
    ASSERT_TRUE(rules.count(room)) << file << ": room " << room << " does not stand in docs/layers.txt";
    const Rule& rule = rules.at(room);
    if (header.rfind("millrace/", 0) == 0) {
      const std::string other = header.substr(9, header.find('/', 9) - 9);
      EXPECT_TRUE(other == room || rule.rooms.count(other)) << file << " includes " << header;
      EXPECT_TRUE(fs::exists(root / "include" / header)) << file << " includes " << header;
    } else if (!fs::exists((root / file).parent_path() / header)) {
      const std::string library = library_of(header);
      EXPECT_TRUE(library.empty() || rule.libraries.count(library))
          << file << " includes " << header << " of " << library;
    } else {  // a header of the own room's folder, never another's by a path upwards
      EXPECT_EQ(header.find(".."), header.npos) << file << " includes " << header;
    }
  }
}

TEST(Layers, TheRuleHasNoCycle) {
  auto rules = read_rules();
  ASSERT_GE(rules.size(), 10u);
  while (!rules.empty()) {
    Names free;
    for (const auto& [room, rule] : rules) {
      bool depends = false;
      for (const auto& other : rule.rooms) depends = depends || rules.count(other);
      if (!depends) free.insert(room);
    }
    ASSERT_FALSE(free.empty()) << "a cycle among the rooms from " << rules.begin()->first << " on";
    for (const auto& room : free) rules.erase(room);
  }
}

TEST(Layers, TheWordCudaStaysInItsPlaces) {
  for (const auto& entry : fs::recursive_directory_iterator(root / "src")) {
    const auto inside = fs::relative(entry.path(), root / "src");
    const std::string room = *inside.begin();
    if (!entry.is_regular_file() || room == "cuda" || room == "cuda_off" || room == "app") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      EXPECT_FALSE(line.find("#if") != line.npos && line.find("CUDA") != line.npos) << inside << ": " << line;
  }
}

}  // namespace
