// Which engine data.reader = auto chooses, and the facts on which the choice depends.
#include "millrace/data/read/reader_choice.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/host_memory.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/shard_files.hpp"
#include "millrace/data/read/source.hpp"

namespace millrace {
namespace {

struct FileSystem {
  unsigned long magic;  // statfs(2)
  const char* name;
  bool local, in_memory;
};

constexpr FileSystem file_systems[] = {
    {0xEF53, "ext4", true, false},         {0x58465342, "xfs", true, false},    {0x9123683E, "btrfs", true, false},
    {0x2FC12FC1, "zfs", true, false},      {0xF2F52010, "f2fs", true, false},   {0x794C7630, "overlayfs", true, false},
    {0x01021994, "tmpfs", true, true},     {0x858458F6, "ramfs", true, true},   {0x6969, "nfs", false, false},
    {0x0BD00BD0, "lustre", false, false},  {0x47504653, "gpfs", false, false},  {0x19830326, "beegfs", false, false},
    {0x00C36400, "ceph", false, false},    {0x65735546, "fuse", false, false},  {0xFF534D42, "cifs", false, false},
    {0xFE534D42, "smb", false, false},     {0xAAD7AAEA, "panfs", false, false}, {0x013111A8, "ibrix", false, false},
    {0x20030528, "orangefs", false, false}};

std::string why_no_direct_io(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0) return std::strerror(errno);
  const bool refused = direct_alignment(fd).offset == 0;
  ::close(fd);
  return refused ? "the file system does not support it" : "";
}

std::string why_no_mmap(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::strerror(errno);
  constexpr std::size_t page = 4096;
  void* const memory = ::mmap(nullptr, page, PROT_READ, MAP_SHARED, fd, 0);
  const std::string why = memory == MAP_FAILED ? std::strerror(errno) : "";
  if (memory != MAP_FAILED) ::munmap(memory, page);
  ::close(fd);
  return why;
}

}  // namespace

ReaderFacts reader_facts(const ShardIndex& index) {
  ReaderFacts facts;
  if (!readable_without_hdf5(index)) facts.hdf5_only_reason = describe_storage(index);
  facts.contiguous = contiguous(index);
  facts.bytes = std::uint64_t(index.rows) * index.sample_bytes();
  facts.available = host_memory().available;
  facts.no_uring = uring_unavailable_reason();
  if (index.shards.empty()) return facts;
  const std::string path = index.shards.front().path;
  struct statfs status {};
  facts.local = false;
  if (::statfs(path.c_str(), &status) == 0)
    for (const FileSystem& f : file_systems)
      if (f.magic == static_cast<unsigned long>(status.f_type)) {
        facts.file_system = f.name;
        facts.local = f.local;
        facts.in_memory = f.in_memory;
      }
  facts.no_direct_io = why_no_direct_io(path);
  facts.no_mmap = why_no_mmap(path);
  return facts;
}

ReaderChoice choose_reader(const ReaderFacts& f) {
  const std::string bytes = format_bytes(f.bytes) + " of samples",
                    half = "half of the " + format_bytes(f.available) + " of free memory";
  if (!f.hdf5_only_reason.empty()) return {Reader::mpio, "only HDF5 can read it"};
  if (!f.contiguous) return {Reader::direct, "chunks are decoded by the workers"};
  const auto mapped = [&f](const std::string& why) {
    return f.no_mmap.empty() ? ReaderChoice{Reader::mmap, why}
                             : ReaderChoice{Reader::direct, why + ", but cannot be mapped: " + f.no_mmap};
  };
  if (f.in_memory) return mapped("files on " + f.file_system + " are in memory");
  if (!f.local)
    return {Reader::direct,
            (f.file_system.empty() ? "a file system unknown here" : f.file_system) + ": its own cache and read-ahead"};
  if (f.bytes <= f.available / 2) return mapped(bytes + " fit in " + half);
  const std::string larger = bytes + " are more than " + half;
  if (!f.no_direct_io.empty()) return {Reader::direct, larger + ", but no O_DIRECT: " + f.no_direct_io};
  return {Reader::uring, larger + (f.no_uring.empty() ? "" : "; no io_uring: " + f.no_uring)};
}

std::string unsupported_reason(Reader reader, const ReaderFacts& f, const ShardIndex& index) {
  const std::string asked = fmt::format("data.reader = {}", name_of(reader));
  if (!f.hdf5_only_reason.empty())
    return fmt::format("{} cannot read {}. use auto or mpio, or `millrace pack` the data", asked, f.hdf5_only_reason);
  if (reader == Reader::direct) return "";
  if (!f.contiguous)
    return fmt::format("{} reads contiguous data only, here is {}. use auto or direct, or `millrace pack` the data",
                       asked, describe_storage(index));
  if (reader == Reader::uring && !f.no_direct_io.empty())
    return fmt::format("{}: {} cannot be read by O_DIRECT ({}). use auto, direct or mmap", asked,
                       index.shards.front().path, f.no_direct_io);
  if (reader == Reader::mmap && !f.no_mmap.empty())
    return fmt::format("{}: {} cannot be mapped ({}). use auto or direct", asked, index.shards.front().path, f.no_mmap);
  return "";
}

}  // namespace millrace
