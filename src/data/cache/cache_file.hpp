// Copies one file to a folder that is local to the node. Any number of runs may copy the same file at once, and none
// sees an incomplete copy. Internal to data/cache.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace {

struct CacheFileRequest {
  std::string source, copy;  // paths
  std::uint64_t bytes = 0;   // size of the source
  // Writes a record beside the copy that identifies the source, and reuses a copy whose record matches the source.
  bool keep = true;
  // Called before the copy is made: why there is no space for this many bytes; empty: there is.
  std::function<std::string(std::uint64_t bytes)> space_problem = {};
  const std::atomic<bool>* ending = nullptr;  // set by another thread to stop the copy
};

struct CacheFileResult {
  enum Kind {
    copied,
    reused,         // a copy of this source was there, and has the checksum of its record
    busy,           // another process is making the copy: try again later
    full,           // no space, or writing failed: see `why`
    source_failed,  // the source cannot be read, or changed meanwhile: see `why`
    ended           // stopped by `ending`
  } kind;
  std::string why;  // for `copied`: what was wrong with the previous copy, if there was one
};

// Returns the reason why the copy does not match the current source, according to its record and its length. Empty: it
// matches; "none": there is no record. Does not read the copy; cache_file() compares its checksum.
std::string copy_record_problem(const std::string& source, const std::string& copy);

// Copies the source, which is read once. The copy is written to <copy>.part, under a lock that ends with the process.
// It is renamed to its final name after its checksum has been compared with that of the source.
CacheFileResult cache_file(const CacheFileRequest&);

}  // namespace millrace
