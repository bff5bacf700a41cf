// Captures of streams, and graphs.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>

#include "simulated_cuda/memory/memory.hpp"
#include "simulated_cuda/runtime.hpp"

struct CUgraph_st {
  std::vector<millrace::simulated::Node> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

namespace millrace::simulated {
namespace {

// The nodes that must be done before all of `last` are, and `last` themselves.
std::set<int> with_ancestors(const std::vector<Node>& nodes, const std::set<int>& last) {
  std::set<int> all;
  std::vector<int> open(last.begin(), last.end());
  while (!open.empty()) {
    const int one = open.back();
    open.pop_back();
    if (!all.insert(one).second) continue;
    const auto& after = nodes[std::size_t(one)].after;
    open.insert(open.end(), after.begin(), after.end());
  }
  return all;
}

// cudaErrorStreamCaptureUnjoined: the capture contains a fork that was not joined to its first stream. A program that
// gives up a capture because of an exception may leave forks open, and gets the error.
cudaError_t check_joined(const Capture& capture) {
  const auto joined = with_ancestors(capture.nodes, capture.origin->frontier);
  for (const cudaStream_t stream : capture.streams)
    for (const int node : stream->frontier) {
      if (joined.contains(node)) continue;
      if (std::current_exception()) return cudaErrorStreamCaptureUnjoined;
      violation("cudaStreamEndCapture", stream,
                fmt::format("'{}' was captured here and not joined to {}", capture.nodes[std::size_t(node)].what,
                            name_of(capture.origin)));
    }
  return cudaSuccess;
}

void list_work(const Capture& capture) {
  if (settings().graphs_file.empty()) return;
  std::ofstream out(settings().graphs_file, std::ios::app);
  for (const Node& node : capture.nodes)
    if (node.run) out << capture.number << ": " << node.what << "\n";
}

// The recordings that one launch of a graph sets and waits for, by node. They are those at the time of the launch.
struct Launch {
  std::shared_ptr<const CUgraph_st> graph;
  std::map<int, std::shared_ptr<Recording>> sets, awaits;
  std::map<int, std::shared_ptr<Trace>> traces;
};

void run_node(const Launch& launch, int index) {
  const Node& node = launch.graph->nodes[std::size_t(index)];
  if (const auto found = launch.awaits.find(index); found != launch.awaits.end()) found->second->wait();
  if (node.run) {
    const DeviceAccess access;
    const auto trace = launch.traces.find(index);
    run_work(node.what, node.run,
             {trace == launch.traces.end() ? nullptr : trace->second.get(), node.activity.dependent});
  }
  if (const auto found = launch.sets.find(index); found != launch.sets.end()) found->second->set();
}

// A kernel that may start now although this one, which is ready, has not run yet: nothing else is missing. -1: none.
int early_follower(const std::vector<Node>& nodes, int index, const std::vector<int>& followers,
                   const std::vector<std::size_t>& missing) {
  const Node& node = nodes[std::size_t(index)];
  if (!node.run || node.activity.kind != Activity::Kind::kernel) return -1;
  for (const int f : followers)
    if (nodes[std::size_t(f)].activity.dependent && missing[std::size_t(f)] == 1 && random_below(2) == 0) return f;
  return -1;
}

// One node after the other, in a random order that the dependencies allow: the order differs from launch to launch.
void run_graph(const Launch& launch) {
  const auto& nodes = launch.graph->nodes;
  std::vector<std::size_t> missing(nodes.size());
  std::vector<std::vector<int>> followers(nodes.size());
  std::vector<int> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (const int before : nodes[i].after) followers[std::size_t(before)].push_back(int(i));
    if (missing[i] == 0) ready.push_back(int(i));
  }
  while (!ready.empty()) {
    const std::size_t pick = random_below(ready.size());
    const int index = ready[pick];
    ready[pick] = ready.back();
    ready.pop_back();
    std::vector<int> chain;
    for (int next = index; next >= 0; next = early_follower(nodes, next, followers[std::size_t(next)], missing))
      chain.push_back(next);
    run_dependent(chain.size(), [&](std::size_t k) { run_node(launch, chain[k]); });
    for (const int done : chain)
      for (const int follower : followers[std::size_t(done)])
        if (--missing[std::size_t(follower)] == 0 && std::find(chain.begin(), chain.end(), follower) == chain.end())
          ready.push_back(follower);
  }
}

}  // namespace

std::mutex& api_mutex() {
  static std::mutex mutex;
  return mutex;
}

int add_node(Stream& stream, Node node) {
  if (settings().capture_seconds > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(settings().capture_seconds));
  static std::uint64_t made = 0;
  node.number = ++made;
  node.after = stream.frontier;
  const int index = int(stream.capture->nodes.size());
  stream.capture->nodes.push_back(std::move(node));
  stream.frontier = {index};
  return index;
}

bool is_capturing(cudaStream_t handle) {
  Stream& stream = stream_of("is_capturing", handle);
  const std::lock_guard hold(api_mutex());
  return stream.capture != nullptr;
}

bool invalidate_capture(cudaStream_t handle) {
  Stream& stream = stream_of("a launch in a capture", handle);
  const std::lock_guard hold(api_mutex());
  if (!stream.capture || !fault_now("capture-launch")) return false;
  stream.capture->invalid = true;
  (void)done(cudaErrorStreamCaptureUnsupported);
  return true;
}

}  // namespace millrace::simulated

using namespace millrace::simulated;

extern "C" {

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  check_call("cudaStreamIsCapturing", Safety::always);
  *status = is_capturing(handle) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return done(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  static std::atomic<int> made{0};
  const char* call = "cudaStreamBeginCapture";
  check_enqueue(call, handle);
  if (!handle) violation(call, handle, "the null stream cannot be captured");
  Stream& stream = stream_of(call, handle);
  const std::lock_guard hold(api_mutex());
  if (stream.capture) violation(call, handle, "the stream is in a capture");
  // Nobody else in this program may be disturbed by a capture of one thread.
  if (mode != cudaStreamCaptureModeThreadLocal) violation(call, handle, "only thread-local captures are simulated");
  stream.capture = std::make_shared<Capture>();
  stream.capture->number = made++;
  stream.capture->origin = handle;
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  stream.capture->streams.insert(handle);
  stream.frontier.clear();
  note_capture(1);
  return done(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  const char* call = "cudaStreamEndCapture";
  check_call(call, Safety::always);
  Stream& stream = stream_of(call, handle);
  const std::lock_guard hold(api_mutex());
  const auto capture = stream.capture;
  // cudaErrorStreamCaptureUnmatched and cudaErrorStreamCaptureWrongThread.
  if (!capture || capture->origin != handle) violation(call, handle, "the capture did not begin in this stream");
  if (capture->thread != std::this_thread::get_id()) violation(call, handle, "another thread began the capture");
  if (fault_now("capture")) capture->invalid = true;
  const cudaError_t problem = capture->invalid ? cudaErrorStreamCaptureInvalidated : check_joined(*capture);
  list_work(*capture);
  for (const cudaStream_t one : capture->streams) {
    one->capture = nullptr;
    one->frontier.clear();
  }
  capture->ended = true;
  note_capture(-1);
  *out = nullptr;  // also "if the capture was invalidated"
  if (problem != cudaSuccess) return done(problem);
  *out = new CUgraph_st{std::move(capture->nodes)};
  return done(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  check_call("cudaGraphInstantiate", Safety::unsafe_in_capture);
  *out = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  return done(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  check_enqueue("cudaGraphUpload", stream);
  return done(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  const char* call = "cudaGraphLaunch";
  check_enqueue(call, handle);
  Stream& stream = stream_of(call, handle);
  const std::lock_guard hold(api_mutex());
  if (stream.capture) violation(call, handle, "graphs in graphs are not simulated");
  auto launch = std::make_shared<Launch>();
  launch->graph = exec->graph;
  const auto& nodes = exec->graph->nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (const auto& event = nodes[i].awaits) {
      if (event->destroyed)
        violation(call, handle, fmt::format("the graph waits for event {}, which was destroyed", event->number));
      if (event->last) launch->awaits[int(i)] = event->last;
    }
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (const auto& event = nodes[i].records) {
      if (event->destroyed)
        violation(call, handle, fmt::format("the graph records event {}, which was destroyed", event->number));
      event->last = std::make_shared<Recording>();
      event->capture = nullptr;
      launch->sets[int(i)] = event->last;
    }
  if (Tracer* const all = tracer)
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].run) launch->traces[int(i)] = all->launch(nodes[i].activity, stream, nodes[i].number);
  stream.push({[launch] { run_graph(*launch); }});
  return done(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return done(cudaSuccess);
}
// What runs keeps its own reference.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return done(cudaSuccess);
}
}
