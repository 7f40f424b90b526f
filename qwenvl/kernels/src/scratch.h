// Memory for what lives during one call. Knows sizes only.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>

namespace qk {

// Grows to what the largest product of a thread needs and stays: memory asked for anew at each call comes as pages
// that the kernel has to clear first.
class Buffer {
public:
    ~Buffer() { std::free(bytes_); }
    void* at_least(std::size_t size) {
        if (size <= size_) return bytes_;
        std::free(bytes_);
        size_ = (size + 4095) / 4096 * 4096;
        bytes_ = std::aligned_alloc(4096, size_);
        if (!bytes_) {
            size_ = 0;
            throw std::bad_alloc();
        }
        return bytes_;
    }

private:
    void* bytes_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace qk
