// Writes the pieces of one rank into the file of a checkpoint, in a thread of its own, while the training goes on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace {

struct BufferedPiece {
  std::size_t piece = 0;       // number of the piece among those of all ranks
  std::uint64_t offset = 0;    // in the file, in bytes
  const char* data = nullptr;  // stays valid until the writer has ended
  std::size_t bytes = 0;
};

struct WrittenPieces {
  std::vector<std::uint32_t> checksums;  // CRC-32 of the bytes of each piece, as they were passed to write()
  std::string problem;                   // why writing failed; "" if it did not
};

// Allocates the space of a file that has its size, which gives it few extents and finds out early whether the disk has
// the space. what: "a checkpoint", for messages. Error(data): it has not.
void allocate_file(const std::filesystem::path&, const char* what);

// Writes the pieces and flushes them to the disk. Does nothing if there are none.
WrittenPieces write_pieces(const std::filesystem::path&, const std::vector<BufferedPiece>&);

}  // namespace millrace
