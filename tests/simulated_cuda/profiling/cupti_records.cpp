#include "simulated_cuda/profiling/cupti_records.hpp"

#include <unistd.h>

#include <mutex>
#include <unordered_set>

namespace millrace::simulated {
namespace {

// The records that this version of the library writes. A program may read them as older ones, which begin alike.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
using FillRecord = CUpti_ActivityMemset4;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using FillRecord = CUpti_ActivityMemset3;
#endif

template <class Record>
void append(Bytes& out, const Record& record) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&record);
  out.insert(out.end(), bytes, bytes + sizeof record);
}

template <class Record>
Bytes fill_in(Record& out, const WorkRecord& work) {
  Bytes bytes;
  out.kind = kind_of(work.activity);
  out.start = work.began;
  out.end = work.ended;
  out.deviceId = work.device;
  out.streamId = work.stream;
  out.correlationId = work.correlation;
  out.graphNodeId = work.node;
  append(bytes, out);
  return bytes;
}

// "This name is shared across all activity records representing the same kernel, and so should not be modified."
const char* shared_name(const std::string& name) {
  static std::mutex mutex;
  static auto* const names = new std::unordered_set<std::string>;
  const std::lock_guard hold(mutex);
  return names->insert(name).first->c_str();
}

}  // namespace

CUpti_ActivityKind kind_of(const Activity& activity) {
  switch (activity.kind) {
    case Activity::Kind::copy:
      return CUPTI_ACTIVITY_KIND_MEMCPY;
    case Activity::Kind::fill:
      return CUPTI_ACTIVITY_KIND_MEMSET;
    default:
      return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  }
}

Bytes bytes_of(const WorkRecord& work) {
  switch (work.activity.kind) {
    case Activity::Kind::copy: {
      CopyRecord copy{};
      copy.bytes = work.activity.bytes;
      return fill_in(copy, work);
    }
    case Activity::Kind::fill: {
      FillRecord fill{};
      fill.bytes = work.activity.bytes;
      return fill_in(fill, work);
    }
    default: {
      KernelRecord kernel{};
      kernel.name = shared_name(work.activity.name);
      return fill_in(kernel, work);
    }
  }
}

Bytes bytes_of_call(CUpti_ActivityKind kind, std::uint32_t correlation, std::uint64_t time,
                    const ExternalIds& external) {
  Bytes all;
  for (const auto& [external_kind, ids] : external) {
    if (ids.empty()) continue;
    CUpti_ActivityExternalCorrelation e{};
    e.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    e.externalKind = external_kind;
    e.externalId = ids.back();
    e.correlationId = correlation;
    append(all, e);
  }
  CUpti_ActivityAPI call{};
  call.kind = kind;
  call.start = time;
  call.end = time;  // how long a call takes is not simulated
  call.processId = std::uint32_t(::getpid());
  call.correlationId = correlation;
  append(all, call);
  return all;
}

std::size_t size_of_record(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(KernelRecord);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CopyRecord);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(FillRecord);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    default:
      return sizeof(CUpti_ActivityAPI);
  }
}

}  // namespace millrace::simulated
