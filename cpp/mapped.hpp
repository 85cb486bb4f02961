// A file mapped into memory that may be truncated while it is read.
//
// Reading a page that the file no longer has raises SIGBUS, which ends a process. While somebody has promised to ask
// `is_lost` before results computed from the values are used, such pages become zeros. Otherwise the process ends with
// a line.

#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <system_error>

namespace stansub {

class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    static std::once_flag once;
    std::call_once(once, handle_bus_errors);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) throw std::system_error(errno, std::generic_category());
    struct stat state {};
    void* begin = MAP_FAILED;
    int failure = 0;
    if (fstat(file, &state) == 0) {
      size_ = static_cast<std::size_t>(state.st_size);
      begin = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    }
    if (begin == MAP_FAILED) failure = errno;
    close(file);
    if (failure) throw std::system_error(failure, std::generic_category());
    region_ = Region::taken();
    region_->is_lost = false;
    region_->end = reinterpret_cast<std::uintptr_t>(begin) + size_;
    region_->begin = reinterpret_cast<std::uintptr_t>(begin);
  }

  ~MappedFile() {
    const std::uintptr_t begin = region_->begin;
    region_->begin = region_->end = 0;
    munmap(reinterpret_cast<void*>(begin), size_);
    region_->is_free = true;
  }

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(region_->begin.load()); }
  std::size_t size() const { return size_; }
  bool is_lost() const { return region_->is_lost; }
  void promise() { ++region_->n_promises; }
  void release() { --region_->n_promises; }

 private:
  // Address range of a mapping. Regions are reused and never freed, because a signal may arrive at any time.
  struct Region {
    std::atomic<std::uintptr_t> begin{0}, end{0};
    std::atomic<bool> is_lost{false}, is_free{false};
    std::atomic<int> n_promises{0};
    Region* next = nullptr;

    static Region* taken() {
      for (Region* one = first; one; one = one->next) {
        bool free = true;
        if (one->is_free.compare_exchange_strong(free, false)) return one;
      }
      auto* added = new Region;
      added->next = first;
      while (!first.compare_exchange_weak(added->next, added)) {
      }
      return added;
    }
  };

  static void handle_bus_errors() {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
  }

  // A file is truncated at its end: if a page is gone, so are all pages after it.
  static void on_bus_error(int number, siginfo_t* info, void*) {
    const int kept = errno;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    for (Region* one = info->si_code == BUS_ADRERR ? first.load() : nullptr; one; one = one->next) {
      if (address < one->begin || address >= one->end) continue;
      if (one->n_promises == 0) end_process();
      const auto page = address - address % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
      if (mmap(reinterpret_cast<void*>(page), one->end - page, PROT_READ, flags, -1, 0) == MAP_FAILED) break;
      one->is_lost = true;
      errno = kept;
      return;
    }
    // Not ours: the previous handler receives the repeated access, or the signal that was sent.
    sigaction(SIGBUS, &before, nullptr);
    if (info->si_code <= 0) raise(number);
    errno = kept;
  }

  [[noreturn]] static void end_process() {
    static const char line[] =
        "stansub: error: a data file was cut short while it was read; run again when no other process writes to it\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, line, sizeof line - 1);
    _exit(1);
  }

  inline static std::atomic<Region*> first{nullptr};
  inline static struct sigaction before {};

  std::size_t size_ = 0;
  Region* region_ = nullptr;
};

}  // namespace stansub
