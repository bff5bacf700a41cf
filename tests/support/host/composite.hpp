// Graphs with matrix products, which cuDNN compiles for a GPU when their plan is made. Without a GPU they have no
// plans, so the tests make some: this file knows what was put into the descriptors, answers in place of the heuristics
// and the engines, and writes the graph into the text of a plan as cuDNN does. cuDNN itself checks the operations and
// the graph.
#pragma once
#include <cudnn.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/host/convolve.hpp"

namespace millrace::test::composite {

void created(cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t);
void destroyed(cudnnBackendDescriptor_t);
// The next three return whether the call has been answered. Otherwise cuDNN has to.
bool set(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, std::int64_t count,
         const void* values);
bool get(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, std::int64_t requested, std::int64_t* count,
         void* values);
bool finalize(cudnnBackendDescriptor_t);

// Computes a node of such a graph.
void compute(const nlohmann::json& node, std::map<std::string, View>&);

}  // namespace millrace::test::composite
