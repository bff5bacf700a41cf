// One file copied to a folder of the node's own, so that any number of runs may do so at once and none ever sees half
// of one. Private to the data room.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace {

struct CacheFileRequest {
  std::string source, copy;  // paths
  std::uint64_t bytes = 0;   // that the source has
  bool keep = true;          // a record beside the copy tells later runs what it is of
  std::function<std::string(std::uint64_t bytes)> space_problem =
      {};                                     // asked before the copy is made: why not; "": there is
  const std::atomic<bool>* ending = nullptr;  // give up
};

struct CacheFileResult {
  enum Kind {
    copied,
    reused,         // it was there, of this very source, and has the checksum that it was made with
    busy,           // another process is making it: ask again
    full,           // no room, or the disk says so: `why`
    source_failed,  // the source cannot be read, or changes meanwhile: `why`
    ended
  } kind;
  std::string why;  // also of `made`: what was wrong with the copy that was there; else ""
};

// Of the copy there may be, by its record and its length; "": it is of this source as it is now, "none": there is no
// record. That its bytes have the record's checksum is for stage_file to see.
std::string copy_record_problem(const std::string& source, const std::string& copy);

// Reads the source once; checks the copy against the checksum of what was read before it gets its name. The copy is
// made in <copy>.part, under a lock that ends with the process.
CacheFileResult cache_file(const CacheFileRequest&);

}  // namespace millrace
