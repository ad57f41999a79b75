// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_CONTRACT_MEMORY_RESOURCE_CONTRACT_H_
#define AIT_TESTS_CONTRACT_MEMORY_RESOURCE_CONTRACT_H_

// What every memory resource does. A resource is put to it by a maker with room for 64 MiB:
//
//   struct HeapMaker {
//     static MemoryHandle Make() { return HeapResource::Create(); }
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Heap, MemoryResourceContract, HeapMaker);

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "ait/memory/resource.h"
#include "support/status_matchers.h"

namespace ait {

template <typename Maker>
class MemoryResourceContract : public ::testing::Test {
 protected:
  struct Block {
    unsigned char* bytes;
    std::size_t size;
    std::size_t alignment;
    unsigned char fill;

    /// Every byte is `fill`: the first is, and each equals the next.
    bool IsIntact() const {
      return size == 0 || (bytes[0] == fill && std::memcmp(bytes, bytes + 1, size - 1) == 0);
    }
  };

  static Block Take(const MemoryHandle& memory, std::size_t size, std::size_t alignment,
                    unsigned char fill) {
    StatusOr<void*> block = memory.Allocate(size, alignment);
    EXPECT_OK(block);
    if (!block.ok()) return {};
    std::memset(*block, fill, size);
    return {static_cast<unsigned char*>(*block), size, alignment, fill};
  }

  static void GiveBack(const MemoryHandle& memory, const Block& block) {
    EXPECT_TRUE(block.IsIntact()) << block.size << " bytes were overwritten by another block";
    memory.Deallocate(block.bytes, block.size, block.alignment);
  }

  /// Takes and gives back at random, at most 24 blocks of up to 1 MiB at a time.
  static void Exercise(const MemoryHandle& memory, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Block> blocks;
    for (int step = 0; step < 200; ++step) {
      if (blocks.size() == 24 || (!blocks.empty() && random() % 3 == 0)) {
        const std::size_t index = random() % blocks.size();
        GiveBack(memory, blocks[index]);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
      } else {
        const std::size_t size = 1 + random() % (std::size_t{1} << (random() % 21));
        const std::size_t alignment = std::size_t{1} << (random() % 13);
        blocks.push_back(Take(memory, size, alignment, static_cast<unsigned char>(random())));
      }
    }
    for (const Block& block : blocks) GiveBack(memory, block);
  }

  MemoryHandle memory_ = Maker::Make();
};

TYPED_TEST_SUITE_P(MemoryResourceContract);

TYPED_TEST_P(MemoryResourceContract, BlocksAreAlignedAndWritable) {
  for (std::size_t size : {1, 127, 128, 4096, 65'537, 1 << 20, 3 << 20}) {
    for (std::size_t alignment = 1; alignment <= MemoryResource::kMaxAlignment; alignment *= 2) {
      const auto block = this->Take(this->memory_, size, alignment, 0x5a);
      const auto address = reinterpret_cast<std::uintptr_t>(block.bytes);
      EXPECT_EQ(address % alignment, 0u) << size << " bytes aligned to " << alignment;
      EXPECT_EQ(address % MemoryResource::kMinAlignment, 0u);
      this->GiveBack(this->memory_, block);
    }
  }
}

TYPED_TEST_P(MemoryResourceContract, BlocksDoNotOverlap) {
  for (unsigned seed = 1; seed <= 5; ++seed) this->Exercise(this->memory_, seed);
}

TYPED_TEST_P(MemoryResourceContract, ThreadsMayAllocateAtOnce) {
  std::vector<std::jthread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([this, seed] { this->Exercise(this->memory_, seed); });
  }
}

TYPED_TEST_P(MemoryResourceContract, AnotherThreadMayGiveBack) {
  const auto block = this->Take(this->memory_, 1 << 20, 128, 0x17);
  std::jthread([&] { this->GiveBack(this->memory_, block); }).join();
  this->GiveBack(this->memory_, this->Take(this->memory_, 1 << 20, 128, 0x18));
}

TYPED_TEST_P(MemoryResourceContract, WhatIsGivenBackCanBeTakenAgain) {
  for (int round = 0; round < 100; ++round) {  // 2 GiB in all
    std::vector<typename TestFixture::Block> blocks;
    for (int i = 0; i < 5; ++i) {
      StatusOr<void*> block = this->memory_.Allocate(std::size_t{4} << 20);
      ASSERT_OK(block);
      std::memset(*block, round, 64);
      blocks.push_back({static_cast<unsigned char*>(*block), std::size_t{4} << 20, 128, 0});
    }
    for (const auto& block : blocks) this->memory_.Deallocate(block.bytes, block.size);
  }
}

TYPED_TEST_P(MemoryResourceContract, ZeroBytesAreNoBlock) {
  ASSERT_OK_AND_ASSIGN(void* const block, this->memory_.Allocate(0));
  EXPECT_EQ(block, nullptr);
  this->memory_.Deallocate(block, 0);
}

TYPED_TEST_P(MemoryResourceContract, RefusesAlignmentsThatAreNone) {
  for (std::size_t alignment : {std::size_t{0}, std::size_t{3}, std::size_t{129},
                                MemoryResource::kMaxAlignment * 2, SIZE_MAX}) {
    EXPECT_THAT(this->memory_.Allocate(1, alignment),
                testing::StatusIs(StatusCode::kInvalidArgument,
                                  ::testing::HasSubstr(StrCat("alignment ", alignment))));
  }
}

TYPED_TEST_P(MemoryResourceContract, RefusesSizesThatOverflowed) {
  for (std::size_t size : {SIZE_MAX, SIZE_MAX - 4095, MemoryResource::kMaxBytes + 1}) {
    EXPECT_THAT(this->memory_.Allocate(size),
                testing::StatusIs(StatusCode::kInvalidArgument, ::testing::HasSubstr("overflow")));
  }
}

TYPED_TEST_P(MemoryResourceContract, TooMuchIsAnErrorAndHarmsNothing) {
  const auto block = this->Take(this->memory_, 4096, 128, 0x33);
  EXPECT_THAT(this->memory_.Allocate(MemoryResource::kMaxBytes),
              testing::StatusIs(StatusCode::kResourceExhausted,
                                ::testing::HasSubstr(StrCat(MemoryResource::kMaxBytes))));
  this->GiveBack(this->memory_, block);
  this->GiveBack(this->memory_, this->Take(this->memory_, 4096, 128, 0x34));
}

TYPED_TEST_P(MemoryResourceContract, ACopyOfTheHandleKeepsTheResource) {
  MemoryHandle copy = this->memory_;
  EXPECT_TRUE(copy == this->memory_);
  const auto block = this->Take(this->memory_, 1 << 20, 128, 0x44);
  this->memory_ = MemoryHandle();
  EXPECT_FALSE(copy == this->memory_);
  this->GiveBack(copy, block);
}

TYPED_TEST_P(MemoryResourceContract, HasAName) {
  EXPECT_FALSE(this->memory_.properties().name.empty());
}

REGISTER_TYPED_TEST_SUITE_P(MemoryResourceContract, BlocksAreAlignedAndWritable, BlocksDoNotOverlap,
                            ThreadsMayAllocateAtOnce, AnotherThreadMayGiveBack,
                            WhatIsGivenBackCanBeTakenAgain, ZeroBytesAreNoBlock,
                            RefusesAlignmentsThatAreNone, RefusesSizesThatOverflowed,
                            TooMuchIsAnErrorAndHarmsNothing, ACopyOfTheHandleKeepsTheResource,
                            HasAName);

}  // namespace ait

#endif  // AIT_TESTS_CONTRACT_MEMORY_RESOURCE_CONTRACT_H_
