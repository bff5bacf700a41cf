// Diagnosis: what bounds a training, measured by leaving out one part after the other, and changes of single keys tried
// against it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/advisor/trials/probe.hpp"
#include "millrace/config/arguments.hpp"

namespace millrace {

struct DiagnosisResult {
  BottleneckMetrics evidence;
  std::vector<Trial> trials;
  std::string parts;  // of the input and of a micro-batch, each by itself, and what the device can do at best
};

struct DiagnoseOptions {
  double seconds = 1;   // of each measurement, about; there are 10 to 40
  double budget = 120;  // seconds, after which no trial begins
};

// The verdict, then each operation beside its roofline. `run`: what a run's account said, for what steps alone do not
// tell; by default there was none. layers: a file for the operations (layers.json); empty: none. Collective.
DiagnosisResult diagnose(World&, const ParsedArguments&, const RunConfig&, const DiagnoseOptions&,
                         const BottleneckMetrics& run = {}, const std::filesystem::path& layers = {});

}  // namespace millrace
