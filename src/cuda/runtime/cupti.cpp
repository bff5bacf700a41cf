// CUPTI requests buffers through a callback, fills them on its own threads, and returns them through another callback.
// The callbacks get no user pointer, so a global variable holds the tracer.
//
// A correlation number connects each kernel with the call that launched it, and so with the label of that call. All
// kernels of a replayed graph carry the number of the graph launch. So operations are known only for kernels that are
// launched one by one.
#include "cuda/runtime/cupti.hpp"

#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "cuda/errors/error_context.hpp"
#include "cuda/runtime/record_breadcrumb.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t buffer_bytes = 4u << 20;
constexpr std::size_t max_records = 4u << 20;  // of one trace; more are dropped, with a warning
// cupti_activity.h: an external correlation record comes right before the record of the API call that it belongs to.
// Without DRIVER and RUNTIME there are no such calls, and so no correlations. The records of the calls are not used.
constexpr CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

struct CuptiLibrary {
  void* handle = nullptr;
  std::string missing;
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(handle, name));
    if (!function) missing = name;
  }
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  std::string words(CUptiResult result) const {
    const char* text = nullptr;
    result_string(result, &text);
    return text ? text : fmt::format("error {}", int(result));
  }
};

// The demangled name of a kernel without its arguments: "void f<float>(float const*)" becomes "f<float>".
std::string readable(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : mangled;
  std::free(text);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0 && name.compare(i, 21, "(anonymous namespace)") != 0) {
      name.resize(i);
      break;
    }
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  return name;
}

class CuptiTracer;
CuptiTracer* active_tracer = nullptr;

class CuptiTracer : public ActivityTracer, public error_context::LabelListener {
 public:
  explicit CuptiTracer(CuptiLibrary library) : library_(std::move(library)) { active_tracer = this; }
  ~CuptiTracer() override {
    if (tracing_) stop();
    active_tracer = nullptr;  // CUPTI stays loaded, because it may still return buffers
  }

  std::string attach() {
    const CUptiResult result = library_.register_callbacks(requested, completed);
    return result == CUPTI_SUCCESS ? "" : library_.words(result);
  }

  void start() override {
    {
      const std::lock_guard lock(mutex_);
      records_.clear();
      occasions_.clear();
      dropped_ = 0;
    }
    for (const CUpti_ActivityKind kind : kinds) {
      const CUptiResult result = library_.enable(kind);
      if (result == CUPTI_SUCCESS) continue;
      log::warn(
          fmt::format("cannot trace the work of the GPU (CUPTI: {}). is another profiler attached? run.profile = 0 "
                      "switches tracing off",
                      library_.words(result)));
      for (const CUpti_ActivityKind other : kinds) library_.disable(other);
      return;
    }
    tracing_ = true;
    error_context::set_label_listener(this);
  }

  std::vector<Activity> stop() override {
    if (!tracing_) return {};
    tracing_ = false;
    error_context::set_label_listener(nullptr);
    for (const CUpti_ActivityKind kind : kinds) library_.disable(kind);
    library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard lock(mutex_);
    if (dropped_ > 0)
      log::warn(fmt::format("a trace of the GPU was too long: {} activities are missing from it", dropped_));
    std::vector<Activity> out;
    for (Record& record : records_) {
      const auto occasion = occasions_.find(record.correlation);
      if (occasion != occasions_.end()) {
        record.activity.label_instance = occasion->second;
        const std::uint64_t index = occasion->second - first_occasion_;
        if (index < labels_.size()) record.activity.label = labels_[index];
      }
      std::string& name = record.activity.name;
      if (!name.empty()) {
        auto& known = names_[name];
        if (known.empty()) known = readable(name);
        name = known;
        if (name.starts_with("nccl")) record.activity.kind = Activity::Kind::sum;
      }
      out.push_back(std::move(record.activity));
    }
    records_.clear();
    occasions_.clear();
    first_occasion_ += labels_.size();
    labels_.clear();
    return out;
  }

  void label_pushed(const char* name) override {
    labels_.push_back(name);
    library_.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, first_occasion_ + labels_.size() - 1);
  }
  void label_popped() override {
    std::uint64_t last = 0;
    library_.pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
  }

 private:
  struct Record {
    Activity activity;
    std::uint32_t correlation = 0;
  };

  static void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records_in_buffer) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
    *size = *buffer ? buffer_bytes : 0;
    *max_records_in_buffer = 0;  // no limit
  }

  static void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    if (active_tracer && buffer) active_tracer->take(buffer, valid);
    std::free(buffer);
  }

  void take(std::uint8_t* buffer, std::size_t valid) {
    const std::lock_guard lock(mutex_);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && library_.next_record(buffer, valid, &record) == CUPTI_SUCCESS) take(*record);
  }

  void take(const CUpti_Activity& record) {
    using Kind = Activity::Kind;
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {  // newer versions of the record begin with the same fields
        const auto& k = reinterpret_cast<const CUpti_ActivityKernel9&>(record);
        const std::string name = k.name ? k.name : "";
        if (is_breadcrumb(name)) return;
        add(Kind::kernel, name, k.start, k.end, k.correlationId);
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& m = reinterpret_cast<const CUpti_ActivityMemcpy5&>(record);
        add(Kind::copy, "", m.start, m.end, m.correlationId);
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& m = reinterpret_cast<const CUpti_ActivityMemset3&>(record);
        add(Kind::kernel, "memset", m.start, m.end, m.correlationId);
        return;
      }
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& e = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
        if (e.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) occasions_[e.correlationId] = e.externalId;
        return;
      }
      default:
        return;
    }
  }

  void add(Activity::Kind kind, const std::string& name, std::uint64_t start, std::uint64_t end,
           std::uint32_t correlation) {
    if (start == 0 || end < start) return;  // had not ended when the buffers were flushed
    if (records_.size() >= max_records) return void(++dropped_);
    records_.push_back({{kind, name, std::int64_t(start), std::int64_t(end), nullptr, 0}, correlation});
  }

  CuptiLibrary library_;
  bool tracing_ = false;
  std::vector<const char*> labels_;  // label of occasion first_occasion_ + i
  std::uint64_t first_occasion_ = 1;
  std::unordered_map<std::string, std::string> names_;  // readable name of each mangled name
  std::mutex mutex_;                                    // guards the members below
  std::vector<Record> records_;
  std::unordered_map<std::uint32_t, std::uint64_t> occasions_;  // occasion of each correlation number
  std::size_t dropped_ = 0;
};

}  // namespace

std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string* why_not, const char* name) {
  std::string ignored;
  std::string& problem = why_not ? *why_not : ignored;
  if (active_tracer) {
    problem = "the work of the GPU is already being traced";
    return nullptr;
  }
  CuptiLibrary library;
  // Not CUPTI_API_VERSION, which is a counter before CUDA 13 (22 in CUDA 12.4).
  const std::string versioned = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
  for (const char* candidate : {name ? name : versioned.c_str(), name ? name : MILLRACE_CUPTI_LIBRARY})
    if (!library.handle && *candidate) library.handle = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) {
    problem = fmt::format("{} was not found. it is part of the CUDA toolkit", name ? name : versioned);
    return nullptr;
  }
  library.find(library.register_callbacks, "cuptiActivityRegisterCallbacks");
  library.find(library.enable, "cuptiActivityEnable");
  library.find(library.disable, "cuptiActivityDisable");
  library.find(library.flush_all, "cuptiActivityFlushAll");
  library.find(library.next_record, "cuptiActivityGetNextRecord");
  library.find(library.push, "cuptiActivityPushExternalCorrelationId");
  library.find(library.pop, "cuptiActivityPopExternalCorrelationId");
  library.find(library.result_string, "cuptiGetResultString");
  if (!library.missing.empty()) {
    problem = "CUPTI has no " + library.missing;
    return nullptr;
  }
  auto made = std::make_unique<CuptiTracer>(library);
  problem = made->attach();
  if (!problem.empty()) return nullptr;
  return made;
}

}  // namespace millrace::cuda
