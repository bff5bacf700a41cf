// How the program ends when a command throws. Nothing between a command and main catches exceptions. An uncaught
// exception reaches std::terminate with the stack intact, so that no destructor waits in MPI for ranks that did not
// fail; freeing a shared window, for example, is collective. The terminate handler gives all ranks a moment to report
// that they failed too. If all did, one message is printed and MPI is finalized. Otherwise this rank prints its message
// and aborts all ranks.
#pragma once
#include <memory>

#include "millrace/comm/world.hpp"

namespace millrace::app {

// Installs the terminate handler: from now on an uncaught exception ends all ranks with the exit code of its Error.
// Takes ownership of the world until release_world(). Collective.
World& end_all_ranks_on_failure(std::unique_ptr<World>);
void release_world();  // for a normal end of the program; collective

}  // namespace millrace::app
