// Scratch memory that takes longer to allocate than to use.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace stansub {

// Threads take one each and leave it for later calls.
template <class T>
class Pool {
 public:
  // One that is nobody else's until its last reference goes, which must be before the pool does.
  template <class Make>
  std::shared_ptr<T> take(Make make) {
    std::shared_ptr<T> one = left();
    if (!one) one = make();
    return {one.get(), [this, one](T*) {
      const std::lock_guard lock(mutex_);
      left_.push_back(one);
    }};
  }

 private:
  std::shared_ptr<T> left() {
    const std::lock_guard lock(mutex_);
    if (left_.empty()) return nullptr;
    auto found = std::move(left_.back());
    left_.pop_back();
    return found;
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<T>> left_;
};

}  // namespace stansub
