// SPDX-License-Identifier: Apache-2.0
// Relu and Dropout: what backward needs of them is one bit an element.
#include "ait/activation/compression.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/Parallel.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/custom_function.h>
// clang-format on

#include <cstring>

#include "activation/bit_mask_internal.h"

namespace ait::inline v0 {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr std::int64_t kGrain = 1 << 15;  // elements of a task, a multiple of a word

template <typename Bits>
Bits InfinityOf(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return static_cast<Bits>(0x7f80u);
    case at::kHalf:
      return static_cast<Bits>(0x7c00u);
    case at::kFloat:
      return static_cast<Bits>(0x7f800000u);
    default:
      return static_cast<Bits>(0x7ff0000000000000u);
  }
}

/// Calls `function` with an unsigned integer of the element's size.
template <typename Apply>
void WithBits(std::size_t element_size, const Apply& apply) {
  if (element_size == 2) {
    apply(std::uint16_t{});
  } else if (element_size == 4) {
    apply(std::uint32_t{});
  } else {
    apply(std::uint64_t{});
  }
}

/// Calls `body(begin, n)` for pieces that begin at words.
template <typename Body>
void ForPieces(std::int64_t n, const Body& body) {
  const std::int64_t pieces = (n + kGrain - 1) / kGrain;
  at::parallel_for(0, pieces, 1, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kGrain;
    body(begin, std::min(n, last * kGrain) - begin);
  });
}

std::uint64_t* WordsOf(const at::Tensor& mask) {
  return static_cast<std::uint64_t*>(mask.mutable_data_ptr());
}

/// Bits in the order of memory; `values` is dense.
template <typename Kernel>
at::Tensor MaskOf(const at::Tensor& values, const Kernel& kernel) {
  const std::int64_t n = values.numel();
  at::Tensor mask = at::empty({internal::MaskWords(n)}, at::kLong);
  WithBits(values.element_size(), [&](auto bits) {
    using Bits = decltype(bits);
    const auto* const from = static_cast<const Bits*>(values.const_data_ptr());
    ForPieces(n, [&](std::int64_t begin, std::int64_t count) {
      kernel(from + begin, WordsOf(mask) + begin / 64, count);
    });
  });
  return mask;
}

bool HasMask(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && tensor.layout() == c10::kStrided && tensor.numel() > 0 &&
         (type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf);
}

/// Dense, so that a mask can be in the order of memory.
at::Tensor Dense(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
}

/// gradient · mask, elementwise; linear, so that it is its own derivative.
struct MaskedGradient : public Function<MaskedGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gradient,
                            const at::Tensor& mask, at::IntArrayRef strides) {
    context->save_for_backward({mask});
    context->saved_data["strides"] = strides.vec();
    at::Tensor from = gradient;
    if (gradient.strides() != strides || !gradient.is_non_overlapping_and_dense()) {
      from = at::empty_strided(gradient.sizes(), strides, gradient.options()).copy_(gradient);
    }
    at::Tensor to = at::empty_strided(gradient.sizes(), strides, gradient.options());
    WithBits(from.element_size(), [&](auto bits) {
      using Bits = decltype(bits);
      const auto* const source = static_cast<const Bits*>(from.const_data_ptr());
      auto* const target = static_cast<Bits*>(to.mutable_data_ptr());
      ForPieces(from.numel(), [&](std::int64_t begin, std::int64_t count) {
        internal::Select(WordsOf(mask) + begin / 64, source + begin, target + begin, count);
      });
    });
    return to;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {apply(gradients[0], context->get_saved_variables()[0],
                  context->saved_data["strides"].toIntVector()),
            at::Tensor(), at::Tensor()};
  }
};

struct MaskedRelu : public Function<MaskedRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
    at::Tensor result = Dense(at::relu(input));
    context->saved_data["strides"] = result.strides().vec();
    context->save_for_backward({MaskOf(result, [&](const auto* from, auto* mask, auto n) {
      using Bits = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
      internal::MaskOfRelu(from, InfinityOf<Bits>(result.scalar_type()), mask, n);
    })});
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {MaskedGradient::apply(gradients[0], context->get_saved_variables()[0],
                                  context->saved_data["strides"].toIntVector())};
  }
};

struct MaskedDropout : public Function<MaskedDropout> {
  // The same operations as at::dropout of the CPU.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, double probability) {
    at::Tensor noise = at::empty_like(input).bernoulli_(1 - probability);
    const at::Tensor dense = Dense(noise);
    context->saved_data["strides"] = dense.strides().vec();
    context->saved_data["keep"] = 1 - probability;
    context->saved_data["type"] = static_cast<std::int64_t>(input.scalar_type());
    context->save_for_backward({MaskOf(dense, [](const auto* from, auto* mask, auto n) {
      internal::MaskOfNonzero(from, mask, n);
    })});
    return at::mul(input, noise.div_(1 - probability));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor mask = context->get_saved_variables()[0];
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    at::Tensor noise =
        at::empty_strided(gradients[0].sizes(), context->saved_data["strides"].toIntVector(), type);
    const at::Tensor kept = at::ones({1}, type).div_(context->saved_data["keep"].toDouble());
    WithBits(noise.element_size(), [&](auto bits) {
      using Bits = decltype(bits);
      Bits value = 0;
      std::memcpy(&value, kept.const_data_ptr(), sizeof(value));
      auto* const to = static_cast<Bits*>(noise.mutable_data_ptr());
      ForPieces(noise.numel(), [&](std::int64_t begin, std::int64_t count) {
        internal::Expand(WordsOf(mask) + begin / 64, value, to + begin, count);
      });
    });
    return {at::mul(gradients[0], noise), at::Tensor()};
  }
};

}  // namespace

at::Tensor Relu(const at::Tensor& input) {
  return HasMask(input) ? MaskedRelu::apply(input) : at::relu(input);
}

at::Tensor Dropout(const at::Tensor& input, double probability, bool training) {
  const bool drops = training && probability > 0 && probability < 1;
  return drops && HasMask(input) ? MaskedDropout::apply(input, probability)
                                 : at::dropout(input, probability, training);
}

}  // namespace ait::inline v0
