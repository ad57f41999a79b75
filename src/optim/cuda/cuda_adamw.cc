// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/cuda_adamw.h"

#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "device/dynamic_library.h"
#include "optim/adam_factors.h"

// What nvcc has made of adamw.cu.
__asm__(
    ".pushsection .rodata\n"
    ".balign 16\n"
    ".hidden ait_cuda_adamw_image\n"
    ".globl ait_cuda_adamw_image\n"
    "ait_cuda_adamw_image:\n"
    ".incbin \"" AIT_CUDA_IMAGE
    "\"\n"
    ".popsection\n");
extern "C" const unsigned char ait_cuda_adamw_image[];

namespace ait::inline v0 {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;  // a thread takes more than one element then

// The functions of libcuda by the names that their symbols have.
struct Driver {
  decltype(&::cuInit) init;
  decltype(&::cuGetErrorString) error_string;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDevicePrimaryCtxRetain) retain;
  decltype(&::cuDevicePrimaryCtxRelease) release;
  decltype(&::cuCtxPushCurrent) push;
  decltype(&::cuCtxPopCurrent) pop;
  decltype(&::cuModuleLoadData) load;
  decltype(&::cuModuleUnload) unload;
  decltype(&::cuModuleGetFunction) get_function;
  decltype(&::cuLaunchKernel) launch;

  static StatusOr<Driver> Open() {
    auto library = internal::DynamicLibrary::Open("", "libcuda.so.1", {});
    if (!library.ok()) return Annotate(library.status(), "no GPU: no driver");
    Driver driver{};
    std::string missing;
    const auto find = [&]<typename F>(F& function, const char* name) {
      function = reinterpret_cast<F>(library->Find(name));
      if (function == nullptr) missing = name;
    };
    find(driver.init, "cuInit");
    find(driver.error_string, "cuGetErrorString");
    find(driver.device_get, "cuDeviceGet");
    find(driver.retain, "cuDevicePrimaryCtxRetain");
    find(driver.release, "cuDevicePrimaryCtxRelease_v2");
    find(driver.push, "cuCtxPushCurrent_v2");
    find(driver.pop, "cuCtxPopCurrent_v2");
    find(driver.load, "cuModuleLoadData");
    find(driver.unload, "cuModuleUnload");
    find(driver.get_function, "cuModuleGetFunction");
    find(driver.launch, "cuLaunchKernel");
    if (missing.empty()) return driver;
    return FailedPreconditionError("no GPU: ", library->path(), " has no function ", missing);
  }

  std::string_view Text(CUresult result) const {
    const char* text = nullptr;
    return error_string(result, &text) == CUDA_SUCCESS && text != nullptr ? text : "unknown error";
  }
};

class LoadedAdamW final : public CudaAdamW {
 public:
  LoadedAdamW(Driver driver, Device device, const AdamWOptions& options)
      : driver_(driver), device_(device), options_(options) {}

  ~LoadedAdamW() override {
    if (context_ == nullptr) return;
    if (module_ != nullptr && driver_.push(context_) == CUDA_SUCCESS) {
      driver_.unload(module_);
      CUcontext popped;
      driver_.pop(&popped);
    }
    driver_.release(handle_);
  }

  Status Load() {
    CUresult result = driver_.init(0);
    if (result == CUDA_SUCCESS) result = driver_.device_get(&handle_, device_.value());
    if (result == CUDA_SUCCESS) result = driver_.retain(&context_, handle_);
    if (result != CUDA_SUCCESS) {
      context_ = nullptr;
      return FailedPreconditionError("no GPU: device ", device_.value(), ": ",
                                     driver_.Text(result));
    }
    return InContext("loading the kernels of AdamW", [&] {
      CUresult loaded = driver_.load(&module_, ait_cuda_adamw_image);
      if (loaded == CUDA_SUCCESS)
        loaded = driver_.get_function(&float32_, module_, "AitAdamWFloat32");
      if (loaded == CUDA_SUCCESS)
        loaded = driver_.get_function(&bfloat16_, module_, "AitAdamWBFloat16");
      return loaded;
    });
  }

  Status Update(void* stream, std::int64_t step, const StepOptions& options,
                const CudaAdamWSlice& slice) override {
    AIT_RETURN_IF_ERROR(Check(step, options, slice));
    if (slice.count == 0) return OkStatus();
    internal::AdamFactors factors = internal::AdamFactorsOf(
        {options_.beta1, options_.beta2, options_.epsilon, internal::Decay::kDecoupled}, step,
        {.learning_rate = options_.learning_rate, .weight_decay = options_.weight_decay}, options);
    const bool has_master = slice.parameter_dtype == DType::kBFloat16;
    void* exact = has_master ? slice.master : slice.parameters;
    void* copy = has_master ? slice.parameters : nullptr;
    void *gradients = slice.gradients, *m = slice.exp_avg, *v = slice.exp_avg_sq;
    std::int64_t n = slice.count;
    int zero = options.gradients_after == GradientsAfter::kZero;
    void* arguments[] = {&exact, &copy, &gradients, &m, &v, &n, &factors, &zero};
    const auto blocks = static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMostBlocks));
    return InContext("AdamW", [&] {
      return driver_.launch(slice.gradient_dtype == DType::kBFloat16 ? bfloat16_ : float32_, blocks,
                            1, 1, kThreads, 1, 1, 0, static_cast<CUstream>(stream), arguments,
                            nullptr);
    });
  }

 private:
  static Status Check(std::int64_t step, const StepOptions& options, const CudaAdamWSlice& slice) {
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (step < 1 || !(std::abs(options.learning_rate_factor) <= kLargest) ||
        !(std::abs(options.gradient_scale) <= kLargest)) {
      return InvalidArgumentError("step ", step, ": learning_rate_factor is ",
                                  options.learning_rate_factor, " and gradient_scale is ",
                                  options.gradient_scale,
                                  "; steps count from 1, and both must be finite in fp32");
    }
    for (const auto& [what, dtype] : {std::pair("parameters", slice.parameter_dtype),
                                      std::pair("gradients", slice.gradient_dtype)}) {
      if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) {
        return InvalidArgumentError(what, " are ", Name(dtype),
                                    "; on a GPU they are float32 or bfloat16");
      }
    }
    const bool has_master = slice.parameter_dtype == DType::kBFloat16;
    if (slice.count < 0 ||
        (slice.count > 0 &&
         (slice.parameters == nullptr || slice.gradients == nullptr || slice.exp_avg == nullptr ||
          slice.exp_avg_sq == nullptr || has_master != (slice.master != nullptr)))) {
      return InvalidArgumentError("a slice of ", slice.count, " elements with ",
                                  Name(slice.parameter_dtype),
                                  " parameters lacks an array, or has a master that it does not "
                                  "use; bfloat16 needs a float32 master, float32 has none");
    }
    return OkStatus();
  }

  template <typename Call>
  Status InContext(std::string_view what, const Call& call) {
    CUresult result = driver_.push(context_);
    if (result == CUDA_SUCCESS) {
      result = call();
      CUcontext popped;
      driver_.pop(&popped);
    }
    if (result == CUDA_SUCCESS) return OkStatus();
    return InternalError(what, " on device ", device_.value(), ": ", driver_.Text(result));
  }

  Driver driver_;
  Device device_;
  AdamWOptions options_;
  CUdevice handle_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction float32_ = nullptr;
  CUfunction bfloat16_ = nullptr;
};

}  // namespace

StatusOr<std::unique_ptr<CudaAdamW>> CudaAdamW::Create(Device device, AdamWOptions options) {
  AIT_RETURN_IF_ERROR(internal::CheckAdamOptions("adamw", options));
  if (options.variant != AdamVariant::kPlain || options.state != StateFormat::kFloat32) {
    return InvalidArgumentError(
        "adamw: on a GPU there is neither AMSGrad nor state in 8 bits; use the defaults of variant "
        "and state");
  }
  AIT_ASSIGN_OR_RETURN(const Driver driver, Driver::Open());
  auto adamw = std::make_unique<LoadedAdamW>(driver, device, options);
  AIT_RETURN_IF_ERROR(adamw->Load());
  return std::unique_ptr<CudaAdamW>(std::move(adamw));
}

}  // namespace ait::inline v0
