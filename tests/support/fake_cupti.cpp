// A fake CUPTI for src/cuda/runtime/cupti.cpp. Its "GPU" produces these records between enable and flush, in this
// order: two kernels of the first labelled call, a kernel of a replayed graph, an all-reduce, a copy, a memset, a
// kernel that has not ended, and a record of a kind that was not requested.
#include <cupti.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

namespace {

CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
std::set<int> enabled, enabled_before_flush;
std::vector<std::uint64_t> pushed;  // the stack of correlation numbers
std::uint64_t first_call = 0;
int wrong_pops = 0;

template <class Record>
void put(std::uint8_t*& at, const Record& record) {
  std::memcpy(at, &record, sizeof record);
  at += sizeof record;
}

CUpti_ActivityKernel9 kernel(const char* name, std::uint64_t start, std::uint64_t end, std::uint32_t correlation) {
  CUpti_ActivityKernel9 k{};
  k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  k.name = name;
  k.start = start;
  k.end = end;
  k.correlationId = correlation;
  return k;
}

}  // namespace

extern "C" {
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r, CUpti_BuffersCallbackCompleteFunc c) {
  request = r;
  complete = c;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  enabled.insert(kind);
  return enabled_before_flush.insert(kind), CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) { return enabled.erase(kind), CUPTI_SUCCESS; }
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t id) {
  if (first_call == 0) first_call = id;
  return pushed.push_back(id), CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t* last) {
  if (pushed.empty()) return ++wrong_pops, CUPTI_ERROR_QUEUE_EMPTY;
  *last = pushed.back();
  return pushed.pop_back(), CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** out) { return *out = "trouble", CUPTI_SUCCESS; }
// Returns 0 if everything that was enabled or pushed has been disabled or popped.
int fake_cupti_state() { return int(enabled.size() + pushed.size()) + wrong_pops; }

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, max_records = 0;
  request(&buffer, &size, &max_records);
  std::uint8_t* at = buffer;
  put(at, kernel("_ZN3abc9transformIfEEvPKfPf", 100, 150, 7));
  put(at, kernel("plain_kernel", 150, 170, 8));
  // Like the real library, it has correlations only of API calls that are traced.
  const bool calls = enabled_before_flush.contains(CUPTI_ACTIVITY_KIND_RUNTIME) &&
                     enabled_before_flush.contains(CUPTI_ACTIVITY_KIND_DRIVER);
  for (const std::uint32_t correlation : {7u, 8u}) {
    if (!calls) break;
    CUpti_ActivityExternalCorrelation e{};
    e.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    e.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    e.correlationId = correlation;
    e.externalId = first_call;
    put(at, e);
    CUpti_ActivityAPI call{};
    call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    call.correlationId = correlation;
    put(at, call);
  }
  put(at, kernel("_ZN3abc9transformIfEEvPKfPf", 200, 240, 9));
  put(at, kernel("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE", 210, 300, 9));
  CUpti_ActivityMemcpy5 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.start = 290;
  copy.end = 310;
  copy.correlationId = 10;
  put(at, copy);
  CUpti_ActivityMemset3 set{};
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.start = 311;
  set.end = 312;
  set.correlationId = 11;
  put(at, set);
  put(at, kernel("unfinished", 320, 0, 12));
  CUpti_ActivityAPI other{};
  other.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  other.correlationId = 13;
  put(at, other);
  complete(nullptr, 0, buffer, size, std::size_t(at - buffer));
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  const auto bytes = [](const CUpti_Activity* a) -> std::size_t {
    switch (a->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel9);
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy5);
      case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset3);
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return sizeof(CUpti_ActivityExternalCorrelation);
      default:
        return sizeof(CUpti_ActivityAPI);
    }
  };
  std::uint8_t* at = *record ? reinterpret_cast<std::uint8_t*>(*record) + bytes(*record) : buffer;
  if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}
}
