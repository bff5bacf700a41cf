// What `millrace inspect` says about the machine: ranks, cores, devices, libraries, what is missing.
#pragma once
#include <string>

#include "millrace/comm/world.hpp"

namespace millrace::app {

std::string describe_machine(World&);  // collective

}  // namespace millrace::app
