// ShardList: the shards of a data set in order, stored compactly. Copies share the memory.
//
// A shard whose x and y are each one range of bytes ("plain") takes a record of 56 bytes and its file name. The records
// may lie in memory that several processes of a node share. Other shards (chunked, encoded, concatenated, cut from an
// array) are stored whole. Shards are returned by value; their paths are views of the list's memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "millrace/data/index/shard.hpp"

namespace millrace {

// What a reader of contiguous samples needs to know about a shard. Cheaper to make than a Shard.
struct ShardRange {
  std::int64_t first = 0, rows = 0;
  std::uint64_t x_offset = 0;
  std::int64_t end() const { return first + rows; }  // one past the last sample
};

class ShardList {
 public:
  ShardList();
  ShardList(std::initializer_list<Shard>);
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  Shard operator[](std::size_t) const;
  Shard at(std::size_t) const;  // checks the bounds
  ShardRange range(std::size_t) const;
  Shard front() const { return at(0); }
  Shard back() const { return at(size() - 1); }
  std::size_t shard_with(std::int64_t id) const;  // index of the shard that holds sample `id`, which must exist
  void push_back(const Shard&);                   // its samples must follow those of the last shard

  // The shards that are not plain, by position.
  const std::map<std::size_t, Shard>& irregular_shards() const;
  // All plain shards as bytes. from_plain_bytes() makes a list of these bytes without copying them, also in another
  // process of the same byte order.
  std::string plain_bytes() const;
  static ShardList from_plain_bytes(std::shared_ptr<const char>, std::size_t bytes,
                                    std::map<std::size_t, Shard> irregular);

  class Iterator {
   public:
    Iterator(const ShardList& list, std::size_t at) : list_(&list), at_(at) {}
    using iterator_category = std::input_iterator_tag;
    using value_type = Shard;
    using difference_type = std::ptrdiff_t;
    using pointer = const Shard*;
    using reference = Shard;
    Shard operator*() const { return (*list_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const ShardList* list_;
    std::size_t at_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

}  // namespace millrace
