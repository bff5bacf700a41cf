// CUPTI asks for buffers, fills them from threads of its own, and gives them back; its callbacks know no object, so the
// one watch is found by a global. Kernels of a replayed graph carry the number of the graph's launch: only those
// launched one by one can be told their operation.
#include "cuda/runtime/cupti.hpp"

#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "cuda/runtime/error_context.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t buffer_bytes = 4u << 20;
constexpr std::size_t most_records = 4u << 20;  // of one watch: what is beyond is dropped, and said
constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

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
    return text ? text : cat("error ", int(result));
  }
};

// A kernel's name without its arguments: "void f<float>(float const*)" is "f<float>".
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
CuptiTracer* watch = nullptr;

class CuptiTracer : public ActivityTracer, public error_context::LabelListener {
 public:
  explicit CuptiTracer(CuptiLibrary library) : library_(std::move(library)) { watch = this; }
  ~CuptiTracer() override {
    if (watching_) stop();
    watch = nullptr;  // CUPTI stays: its buffers may still come back
  }

  std::string attach() {
    const CUptiResult result = library_.register_callbacks(requested, completed);
    return result == CUPTI_SUCCESS ? "" : library_.words(result);
  }

  void start() override {
    {
      const std::lock_guard lock(mutex_);
      records_.clear(), occasions_.clear();
      dropped_ = 0;
    }
    for (const CUpti_ActivityKind kind : kinds) {
      const CUptiResult result = library_.enable(kind);
      if (result == CUPTI_SUCCESS) continue;
      log::warn(cat("the GPU's work is not traced (CUPTI: ", library_.words(result),
                    "). is another profiler attached? run.profile = 0 leaves it alone"));
      for (const CUpti_ActivityKind other : kinds) library_.disable(other);
      return;
    }
    watching_ = true;
    error_context::set_label_listener(this);
  }

  std::vector<Activity> stop() override {
    if (!watching_) return {};
    watching_ = false;
    error_context::set_label_listener(nullptr);
    for (const CUpti_ActivityKind kind : kinds) library_.disable(kind);
    library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard lock(mutex_);
    if (dropped_ > 0) log::warn(cat("a trace of the GPU was too long: ", dropped_, " activities are left out"));
    std::vector<Activity> out;
    for (Record& record : records_) {
      const auto occasion = occasions_.find(record.correlation);
      if (occasion != occasions_.end()) {
        record.activity.occasion = occasion->second;
        const std::uint64_t index = occasion->second - first_occasion_;
        if (index < works_.size()) record.activity.work = works_[index];
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
    records_.clear(), occasions_.clear();
    first_occasion_ += works_.size();
    works_.clear();
    return out;
  }

  void label_pushed(const char* name) override {
    works_.push_back(name);
    library_.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, first_occasion_ + works_.size() - 1);
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

  static void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
    *size = *buffer ? buffer_bytes : 0;
    *most = 0;  // as many as fit
  }

  static void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    if (watch && buffer) watch->take(buffer, valid);
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
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {  // later versions begin with the same fields
        const auto& k = reinterpret_cast<const CUpti_ActivityKernel9&>(record);
        const std::string name = k.name ? k.name : "";
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
    if (start == 0 || end < start) return;  // not ended when the buffers were called back
    if (records_.size() >= most_records) return void(++dropped_);
    records_.push_back({{kind, name, std::int64_t(start), std::int64_t(end), nullptr, 0}, correlation});
  }

  CuptiLibrary library_;
  bool watching_ = false;
  std::vector<const char*> works_;  // by number of the occasion, from first_occasion_ on
  std::uint64_t first_occasion_ = 1;
  std::unordered_map<std::string, std::string> names_;
  std::mutex mutex_;  // guards what follows
  std::vector<Record> records_;
  std::unordered_map<std::uint32_t, std::uint64_t> occasions_;  // by correlation
  std::size_t dropped_ = 0;
};

}  // namespace

std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string* why_not, const char* name) {
  std::string ignored;
  std::string& problem = why_not ? *why_not : ignored;
  if (watch) {
    problem = "the GPU's work is watched already";
    return nullptr;
  }
  CuptiLibrary library;
  const std::string versioned = cat("libcupti.so.", CUPTI_API_VERSION / 10000);
  for (const char* candidate : {name ? name : versioned.c_str(), name ? name : MILLRACE_CUPTI_LIBRARY})
    if (!library.handle && *candidate) library.handle = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) {
    problem = cat(name ? name : versioned, " is not there: it comes with the CUDA toolkit");
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
