// A simulated CUPTI: activity records for the work that the simulated streams really run. Its clock is not that of
// std::chrono::steady_clock, as in the real library. Quotations are from cupti_activity.h.
#include <cupti.h>
#include <fmt/core.h>

#include <chrono>
#include <cstring>

#include "simulated_cuda/profiling/cupti_records.hpp"
#include "simulated_cuda/runtime.hpp"

namespace millrace::simulated {
namespace {

std::uint64_t timestamp() {
  return std::uint64_t(std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t bytes = 0, used = 0, most_records = 0, records = 0;
};

// Of the calling thread.
thread_local ExternalIds external_ids;
thread_local std::uint32_t last_correlation = 0;
thread_local bool is_worker = false;

class Cupti : public Tracer {
 public:
  static Cupti& instance() {
    static auto* const one = new Cupti;  // streams may outlive main()
    return *one;
  }

  CUptiResult register_callbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete) {
    if (!request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
    const std::lock_guard hold(mutex_);
    if (!complete_) std::thread([this] { serve(); }).detach();
    request_ = request;
    complete_ = complete;
    tracer = this;
    return CUPTI_SUCCESS;
  }

  CUptiResult enable(const char* call, CUpti_ActivityKind kind, bool on) {
    if (kind <= CUPTI_ACTIVITY_KIND_INVALID || kind >= CUPTI_ACTIVITY_KIND_COUNT) return CUPTI_ERROR_INVALID_KIND;
    for (const auto known :
         {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_RUNTIME,
          CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
      if (known != kind) continue;
      const std::lock_guard hold(mutex_);
      if (on)
        enabled_.insert(kind);
      else
        enabled_.erase(kind);
      return CUPTI_SUCCESS;
    }
    violation(call, fmt::format("activities of kind {} are not simulated", int(kind)));
  }

  // "When a CUPTI activity API record is created while within an external API region and EXTERNAL_CORRELATION is
  // enabled, the activity API record will be preceded by a CUpti_ActivityExternalCorrelation record for each
  // CUpti_ExternalCorrelationKind." So without records of calls there are none of these.
  void call(const char* name) override {
    static std::atomic<std::uint32_t> calls{0};
    last_correlation = ++calls;
    const std::string_view text = name;
    const bool runtime = text.starts_with("cuda") || text.starts_with("launch");
    const CUpti_ActivityKind kind = runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
    const std::lock_guard hold(mutex_);
    if (!enabled_.contains(kind)) return;
    const bool correlates = enabled_.contains(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    put(std::this_thread::get_id(),
        bytes_of_call(kind, last_correlation, timestamp(), correlates ? external_ids : ExternalIds{}));
  }

  std::shared_ptr<Trace> launch(const Activity& activity, const Stream& stream, std::uint64_t node) override {
    const std::lock_guard hold(mutex_);
    if (!enabled_.contains(kind_of(activity))) return nullptr;
    // The nodes of a graph have the correlation of its launch.
    auto trace = std::make_shared<WorkTrace>(*this);
    unfinished_[trace.get()] = {activity, last_correlation, std::uint32_t(stream.device), std::uint32_t(stream.number),
                                node};
    return trace;
  }

  // "This is a blocking call but it doesn't issue any CUDA synchronization calls." A forced flush returns incomplete
  // records as well, which "may contain invalid (0) timestamps".
  CUptiResult flush(std::uint32_t flag) {
    std::unique_lock hold(mutex_);
    if (!complete_) return CUPTI_ERROR_INVALID_OPERATION;
    if (is_worker) violation("cuptiActivityFlushAll", "is called by a callback of CUPTI, and would wait for itself");
    if (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) {
      for (const auto& [trace, record] : unfinished_) put({}, bytes_of(record));
      unfinished_.clear();
    }
    for (const auto& [thread, buffer] : open_)
      if (buffer.data) full_.push_back(buffer);
    open_.clear();
    changed_.notify_all();
    changed_.wait(hold, [&] { return full_.empty() && !delivers_; });
    return CUPTI_SUCCESS;
  }

 private:
  struct WorkTrace : Trace {
    Cupti& cupti;
    explicit WorkTrace(Cupti& c) : cupti(c) {}
    void begin() override { cupti.note(this, false); }
    void end() override { cupti.note(this, true); }
  };
  void note(const Trace* trace, bool ends) {
    const std::lock_guard hold(mutex_);
    const auto found = unfinished_.find(trace);
    if (found == unfinished_.end()) return;  // it was flushed before it was complete
    if (!ends) return void(found->second.began = timestamp());
    found->second.ended = timestamp();
    put({}, bytes_of(found->second));
    unfinished_.erase(found);
  }

  // Records of a thread's calls are in its buffer (CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER is on by default),
  // and those of work are in another. mutex_ is held.
  void put(std::thread::id thread, const Bytes& records) {
    Buffer& buffer = open_[thread];
    const bool counts = buffer.most_records > 0;
    if (buffer.data &&
        (buffer.used + records.size() > buffer.bytes || (counts && buffer.records >= buffer.most_records))) {
      full_.push_back(buffer);
      buffer = {};
      changed_.notify_all();
    }
    if (!buffer.data) buffer = request();
    if (buffer.used + records.size() > buffer.bytes) return;  // "In this case CUPTI may drop activity records."
    std::memcpy(buffer.data + buffer.used, records.data(), records.size());
    buffer.used += records.size();
    ++buffer.records;
  }

  Buffer request() {
    Buffer buffer;
    request_(&buffer.data, &buffer.bytes, &buffer.most_records);
    if (!buffer.data) buffer.bytes = 0;
    // cupti_common.h: records are aligned to this, and so are the buffers of all samples.
    if (reinterpret_cast<std::uintptr_t>(buffer.data) % ACTIVITY_RECORD_ALIGNMENT != 0)
      violation("CUPTI", fmt::format("the buffer at {} is not aligned to {} bytes", static_cast<void*>(buffer.data),
                                     ACTIVITY_RECORD_ALIGNMENT));
    return buffer;
  }

  // CUPTI's worker thread, which returns buffers.
  void serve() {
    is_worker = true;
    std::unique_lock hold(mutex_);
    for (;;) {
      changed_.wait(hold, [&] { return !full_.empty(); });
      const Buffer buffer = full_.front();
      full_.pop_front();
      delivers_ = true;
      hold.unlock();
      complete_(nullptr, 0, buffer.data, buffer.bytes, buffer.used);
      hold.lock();
      delivers_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  std::set<int> enabled_;
  std::map<std::thread::id, Buffer> open_;  // by thread of calls; without a thread: for work
  std::deque<Buffer> full_;
  bool delivers_ = false;
  std::map<const Trace*, WorkRecord> unfinished_;
};

bool is_external_kind(CUpti_ExternalCorrelationKind kind) {
  return kind > CUPTI_EXTERNAL_CORRELATION_KIND_INVALID && kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE;
}

}  // namespace
}  // namespace millrace::simulated

using namespace millrace::simulated;

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  return Cupti::instance().register_callbacks(request, complete);
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return Cupti::instance().enable("cuptiActivityEnable", kind, true);
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return Cupti::instance().enable("cuptiActivityDisable", kind, false);
}
CUptiResult cuptiActivityFlushAll(std::uint32_t flag) { return Cupti::instance().flush(flag); }

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  if (!buffer) return CUPTI_ERROR_INVALID_PARAMETER;
  std::uint8_t* at = *record ? reinterpret_cast<std::uint8_t*>(*record) + size_of_record(**record) : buffer;
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}

// Both are about the calling thread.
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, std::uint64_t id) {
  if (!is_external_kind(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
  external_ids[kind].push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, std::uint64_t* last) {
  if (!is_external_kind(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
  auto& ids = external_ids[kind];
  if (ids.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last) *last = ids.back();
  ids.pop_back();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** out) {
  *out = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "a CUPTI error";
  return CUPTI_SUCCESS;
}
}
