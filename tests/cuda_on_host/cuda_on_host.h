// Run CUDA C++ kernels on the CPU, for tests: what the project's kernels use of the language, and no more.
//
// Each CUDA thread is a fiber; blocks run one after the other. Reported: barriers that not all threads reach, warp
// operations whose lanes do not meet, sizes outside CUDA's limits. Shared memory begins poisoned. Built with
// AddressSanitizer, accesses out of bounds are found; with ThreadSanitizer, races, also between blocks.
#pragma once
#define CUDA_ON_HOST 1
#include <math.h>  // with float overloads, as CUDA has them
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };

namespace cuda_on_host {

struct Place { uint3 thread, block; dim3 block_size, grid_size; };
struct Configuration { unsigned grid[3], block[3]; };

extern Place place;
extern unsigned char* shared_memory;

void barrier(int line);
void warp_barrier(unsigned mask, int line);
uint64_t shuffle_xor_bits(unsigned mask, uint64_t bits, int lane_mask, int line);
int launch(void (*kernel)(void*), void* arguments, const Configuration& sizes, size_t shared, int schedule,
           unsigned seed, int concurrent);

template <class T>
T shuffle_xor(unsigned mask, T value, int lane_mask, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = shuffle_xor_bits(mask, bits, lane_mask, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
const char* type_name() {
    if (std::is_pointer_v<T>) return "pointer";
    if (std::is_floating_point_v<T>) return sizeof(T) == 8 ? "float64" : "float32";
    if (std::is_unsigned_v<T>) return sizeof(T) == 8 ? "uint64" : "uint32";
    return sizeof(T) == 8 ? "int64" : "int32";
}

// Calls `kernel` with arguments that lie somewhere in memory, and tells the types of its parameters.
template <class... P>
struct Call {
    void (*kernel)(P...);
    void** arguments;

    template <size_t... I>
    void unpack(std::index_sequence<I...>) { kernel(*static_cast<P*>(arguments[I])...); }

    static void run(void* self) { static_cast<Call*>(self)->unpack(std::index_sequence_for<P...>{}); }

    static const char* parameter(size_t place) {
        static const char* const names[] = {type_name<P>()..., nullptr};
        return place < sizeof...(P) ? names[place] : nullptr;
    }
};
template <class... P>
Call<P...> make_call(void (*kernel)(P...), void** arguments) { return {kernel, arguments}; }

}  // namespace cuda_on_host

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(name) unsigned char* name = cuda_on_host::shared_memory

#define threadIdx cuda_on_host::place.thread
#define blockIdx cuda_on_host::place.block
#define blockDim cuda_on_host::place.block_size
#define gridDim cuda_on_host::place.grid_size

#define __syncthreads() cuda_on_host::barrier(__LINE__)
#define __syncwarp(mask) cuda_on_host::warp_barrier(mask, __LINE__)
#define __shfl_xor_sync(mask, value, lane_mask) cuda_on_host::shuffle_xor(mask, value, lane_mask, __LINE__)

template <class T>
T min(T a, T b) { return b < a ? b : a; }
template <class T>
T max(T a, T b) { return a < b ? b : a; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
// cos and sin of pi times x, as CUDA offers them.
inline double cospi(double x) { return cos(M_PI * x); }
inline double sinpi(double x) { return sin(M_PI * x); }
inline float cospi(float x) { return (float)cos(M_PI * (double)x); }

#define EXPORT_KERNEL(name)                                                                                            \
    extern "C" int launch_##name(const cuda_on_host::Configuration* sizes, size_t shared, void** arguments,            \
                                 int schedule, unsigned seed, int concurrent) {                                        \
        auto call = cuda_on_host::make_call(::name, arguments);                                                        \
        return cuda_on_host::launch(call.run, &call, *sizes, shared, schedule, seed, concurrent);                      \
    }                                                                                                                  \
    extern "C" const char* parameter_##name(size_t place) {                                                            \
        return decltype(cuda_on_host::make_call(::name, nullptr))::parameter(place);                                   \
    }
