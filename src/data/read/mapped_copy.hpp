// Copies from mapped files. If a page cannot be read (the file shrank, the disk failed), the kernel sends SIGBUS, which
// would end the process without an error message. Here it ends only the copy. Internal to data/.
#pragma once
#include <cstddef>

namespace millrace {

// False: a page of `from` cannot be read. Thread-safe. A SIGBUS outside of this function goes to the handler that was
// installed before.
bool copy_mapped(void* to, const void* from, std::size_t bytes);

}  // namespace millrace
