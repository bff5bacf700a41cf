// Checks the #includes of src/ and include/ against docs/layers.txt, and the sizes of files and folders.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace layers_test {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

struct Rule {
  Names folders, libraries;
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

// The third-party library that a header belongs to; "" for headers that any folder may include: those of C, C++, the
// system and fmt.
std::string library_of(const std::string& header) {
  static const std::pair<std::regex, const char*> known[] = {
      {std::regex("zlib\\.h"), "zlib"},
      {std::regex("zip\\.h"), "libzip"},
      {std::regex("onnx/.*|google/protobuf/.*"), "onnx"},
      {std::regex("szlib\\.h|libaec\\.h"), "szip"},
      {std::regex("lz4.*\\.h"), "lz4"},
      {std::regex("zstd.*\\.h"), "zstd"},
      {std::regex("blosc\\.h"), "blosc"},
      {std::regex("liburing\\.h"), "uring"},
      {std::regex("png.*\\.h"), "png"},
      {std::regex("jpeglib\\.h|jerror\\.h"), "jpeg"},
      {std::regex("mpi\\.h|mpi-ext\\.h"), "mpi"},
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
  if (header.rfind("fmt/", 0) == 0) return "";
  return header.find('/') == header.npos || header.rfind("sys/", 0) == 0 || header.rfind("linux/", 0) == 0
             ? ""
             : "unknown (" + header + ")";
}

struct Include {
  std::string file, folder, header;
};

bool is_source(const fs::path& file) {
  return std::set<std::string>{".cpp", ".hpp", ".cu", ".cuh", ".h"}.count(file.extension()) > 0;
}

// "data/read" for src/data/read/with/uring.cpp and for include/millrace/data/read/source.hpp.
std::string folder_of(const fs::path& inside) {
  std::string folder = inside.parent_path().generic_string();
  for (const char* variant : {"/without", "/with"})
    if (folder.ends_with(variant)) folder.resize(folder.size() - std::string(variant).size());
  return folder;
}

std::string room_of(const std::string& folder) { return folder.substr(0, folder.find('/')); }

std::vector<fs::path> source_files() {
  std::vector<fs::path> out;
  for (const char* top : {"src", "include/millrace"})
    for (const auto& entry : fs::recursive_directory_iterator(root / top))
      if (is_source(entry.path())) out.push_back(fs::relative(entry.path(), root));
  return out;
}

std::vector<fs::path> test_files() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(root / "tests"))
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".hpp")
      out.push_back(fs::relative(entry.path(), root));
  return out;
}

fs::path inside_of(const fs::path& file) {
  return fs::relative(file, file.begin()->string() == "src" ? "src" : "include/millrace");
}

std::vector<Include> read_includes() {
  std::vector<Include> out;
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  for (const fs::path& file : source_files()) {
    std::ifstream in(root / file);
    std::smatch match;
    for (std::string line; std::getline(in, line);)
      if (std::regex_search(line, match, pattern))
        out.push_back({file.generic_string(), folder_of(inside_of(file)), match[1]});
  }
  return out;
}

TEST(Layers, EveryIncludeIsAllowed) {
  const auto rules = read_rules();
  const auto includes = read_includes();
  ASSERT_GT(includes.size(), 100u);
  for (const auto& [file, folder, header] : includes) {
    ASSERT_TRUE(rules.count(folder)) << file << ": docs/layers.txt has no line for " << folder;
    const Rule& rule = rules.at(folder);
    const bool is_public = header.rfind("millrace/", 0) == 0;
    if (is_public || fs::exists(root / "src" / header)) {
      const std::string other = folder_of(is_public ? header.substr(9) : header);
      EXPECT_TRUE(fs::exists(root / (is_public ? "include" : "src") / header)) << file << " includes " << header;
      EXPECT_TRUE(other == folder || rule.folders.count(other))
          << file << " includes " << header << ": docs/layers.txt does not allow " << folder << " -> " << other;
      EXPECT_TRUE(is_public || room_of(other) == room_of(folder))
          << file << " includes " << header << ", a private header of another room";
      EXPECT_TRUE(is_public || file.rfind("src/", 0) == 0)
          << file << " is public and includes the private header " << header;
    } else {
      const std::string library = library_of(header);
      EXPECT_TRUE(library.empty() || rule.libraries.count(library))
          << file << " includes " << header << ": docs/layers.txt does not allow the library " << library;
    }
  }
}

// A header must be public only if a file of another room or another public header includes it.
TEST(Layers, PublicHeadersAreUsedByOtherRooms) {
  const auto includes = read_includes();
  Names needed;
  for (std::size_t before = 1; before != needed.size();) {
    before = needed.size();
    for (const auto& [file, folder, header] : includes) {
      if (header.rfind("millrace/", 0) != 0) continue;
      const bool elsewhere = room_of(folder) != room_of(folder_of(header.substr(9)));
      if (elsewhere || needed.count(file)) needed.insert("include/" + header);
    }
    if (before == 0 && needed.empty()) break;
  }
  for (const fs::path& file : source_files())
    EXPECT_TRUE(*file.begin() != "include" || needed.count(file.generic_string()))
        << file << " is included by its own room alone: move it to src/";
}

TEST(Layers, RulesHaveNoCycle) {
  auto rules = read_rules();
  ASSERT_GE(rules.size(), 10u);
  while (!rules.empty()) {
    Names free;
    for (const auto& [folder, rule] : rules) {
      bool depends = false;
      for (const auto& other : rule.folders) depends = depends || rules.count(other);
      if (!depends) free.insert(folder);
    }
    ASSERT_FALSE(free.empty()) << "docs/layers.txt has a cycle of folders; one of them or of its users is "
                               << rules.begin()->first;
    for (const auto& folder : free) rules.erase(folder);
  }
}

TEST(Layers, FilesAndFoldersAreSmall) {
  constexpr int max_lines = 300;
  constexpr int max_files = 30;
  std::map<std::string, int> files;
  const auto check_lines = [&](const fs::path& file) {
    std::ifstream in(root / file);
    const auto lines = std::count(std::istreambuf_iterator<char>(in), {}, '\n');
    EXPECT_LE(lines, max_lines) << file << " has " << lines << " lines: split it";
  };
  for (const auto& some : {source_files(), test_files()})
    for (const fs::path& file : some) {
      ++files[file.parent_path().generic_string()];
      check_lines(file);
    }
  for (const auto& [folder, count] : files)
    EXPECT_LE(count, max_files) << folder << " holds " << count << " files: make sub-folders";
}

TEST(Layers, CudaConditionalsStayInTheirRooms) {
  for (const auto& entry : fs::recursive_directory_iterator(root / "src")) {
    const auto inside = fs::relative(entry.path(), root / "src");
    const std::string room = *inside.begin();
    if (!entry.is_regular_file() || room == "cuda" || room == "cuda_off" || room == "app") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      EXPECT_FALSE(line.find("#if") != line.npos && line.find("CUDA") != line.npos) << inside << ": " << line;
  }
}

}  // namespace layers_test
