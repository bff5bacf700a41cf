// Brings a set's files to its node, in a thread beside the training: each of the node's ranks copies its part, and
// reads from the copies of all of them. Private to the data room.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "millrace/comm/world.hpp"
#include "millrace/data/shards.hpp"
#include "millrace/data/staging.hpp"
#include "millrace/telemetry/account.hpp"
#include "staged_copies.hpp"

namespace millrace {

class Stager {
 public:
  // Collective. Makes the folder; copies nothing. Error(config) on every rank where one cannot write there.
  Stager(World&, const ShardIndex&, const StagingOptions&);
  ~Stager();
  std::shared_ptr<StagedCopies> copies() const;
  // Begins to copy. reopen: the shard is read from another file from now on; called by one thread.
  void start(std::function<void(std::size_t shard)> reopen);
  std::string describe() const;
  StagingFigures figures() const;  // samples are the caller's to count

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
