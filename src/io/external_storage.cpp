#include "io/external_storage.hpp"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "io/check.hpp"
#include "io/handle.hpp"
#include "millrace/base/error.hpp"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
constexpr rlim_t other_open_files = 64;  // of this program and of MPI

// The name of source file `i`, or of the data set in it.
using NameOf = ssize_t (*)(hid_t, std::size_t, char*, std::size_t);
std::string source_name(hid_t dcpl, std::size_t i, const std::string& path, NameOf name_of) {
  const ssize_t length = MR_H5(path, name_of(dcpl, i, nullptr, 0));
  std::string out(std::size_t(length), '\0');
  MR_H5(path, name_of(dcpl, i, out.data(), out.size() + 1));
  return out;
}

// The file that HDF5 would open: it tries these places in this order. "" if the file is in none of them.
std::string find_source(const std::string& name, const std::string& path) {
  std::error_code none;
  const fs::path here = fs::path(path).parent_path(), real = fs::canonical(path, none).parent_path();
  const char* prefix = std::getenv("HDF5_VDS_PREFIX");
  const std::string last = fs::path(name).is_absolute() ? fs::path(name).filename().string() : name;
  std::vector<fs::path> places;
  if (fs::path(name).is_absolute()) places.push_back(name);
  if (prefix && *prefix) places.push_back(fs::path(prefix) / last);
  for (const fs::path& folder : {here, fs::path(), real}) places.push_back(folder / last);
  for (const fs::path& place : places)
    if (fs::is_regular_file(place, none)) return place.string();
  return "";
}

bool allow_open_files(std::size_t files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  if (limit.rlim_cur >= files + other_open_files) return true;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, files + other_open_files);
  return limit.rlim_cur == files + other_open_files && ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::string source_problem(const std::string& file, const std::string& dataset) {
  const Handle source(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  const Handle values(source ? H5Dopen2(source, dataset.c_str(), H5P_DEFAULT) : H5I_INVALID_HID, H5Dclose);
  const Handle how(values ? H5Dget_create_plist(values) : H5I_INVALID_HID, H5Pclose);
  H5Eclear2(H5E_DEFAULT);
  if (!source) return fmt::format("its source {} cannot be opened as an HDF5 file", file);
  if (!values) return fmt::format("its source {} has no data set {}", file, dataset);
  if (H5Pget_layout(how) == H5D_VIRTUAL)
    return fmt::format("its source {}:{} is virtual, too. pack that one instead", file, dataset);
  return "";
}

}  // namespace

std::string virtual_dataset_problem(hid_t dcpl, const std::string& path) {
  std::size_t count = 0;
  MR_H5(path, H5Pget_virtual_count(dcpl, &count));
  std::set<std::string> files;
  std::set<std::pair<std::string, std::string>> seen;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = source_name(dcpl, i, path, H5Pget_virtual_filename),
                      dataset = source_name(dcpl, i, path, H5Pget_virtual_dsetname);
    if (!seen.emplace(name, dataset).second) continue;
    if (name.find('%') != name.npos || dataset.find('%') != dataset.npos)
      return fmt::format(
          "its sources are the pattern {}:{}, so a missing source cannot be detected. name the source files instead",
          name, dataset);
    const std::string file = name == "." ? path : find_source(name, path);
    if (file.empty()) return fmt::format("its source {} is missing; its values would become the fill value", name);
    if (const std::string problem = source_problem(file, dataset); !problem.empty()) return problem;
    files.insert(file);
  }
  if (!allow_open_files(files.size()))
    return fmt::format("it has {} source files, more than may be open at once. raise ulimit -n to {}", files.size(),
                       files.size() + other_open_files);
  return "";
}

std::string external_storage_problem(hid_t dcpl, const std::string& path, bool& relative_to_file) {
  const int count = MR_H5(path, H5Pget_external_count(dcpl));
  const fs::path folder = fs::path(path).parent_path();
  std::string first;
  for (const bool here : {true, false}) {
    std::string problem;
    relative_to_file = here;
    for (int i = 0; i < count && problem.empty(); ++i) {
      char name[4096] = "";
      off_t offset = 0;
      hsize_t bytes = 0;
      MR_H5(path, H5Pget_external(dcpl, unsigned(i), sizeof name - 1, name, &offset, &bytes));
      const fs::path file = here && fs::path(name).is_relative() ? folder / name : fs::path(name);
      std::error_code none;
      const std::uintmax_t holds = fs::file_size(file, none);
      if (none)
        problem = fmt::format("its external file {} is missing", name);
      else if (bytes != H5F_UNLIMITED && holds < std::uintmax_t(offset) + bytes)
        problem = fmt::format("its external file {} has {} bytes, not the {} that belong to it", file.string(), holds,
                              std::uintmax_t(offset) + bytes);
    }
    if (problem.empty()) return "";
    if (here) first = problem;
  }
  return first;
}

}  // namespace millrace::io
