// Copies out of mapped files. A page that cannot be had (the file shrank, the disk failed) is a SIGBUS, which would end
// the process without a word; here it ends the copy. Private to the data room.
#pragma once
#include <cstddef>

namespace millrace {

// False: a page of `from` is not to be had. Several threads at once. A SIGBUS elsewhere goes the way it went before.
bool copy_mapped(void* to, const void* from, std::size_t bytes);

}  // namespace millrace
