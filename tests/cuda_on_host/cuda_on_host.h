// Run CUDA C++ kernels on the CPU, for tests: what the project's kernels use of the language, and no more.
//
// Each CUDA thread is a fiber; blocks run one after the other. Reported: barriers that not all threads reach, warp
// operations whose lanes do not meet, sizes outside CUDA's limits. Shared memory begins poisoned. Built with
// AddressSanitizer, accesses out of bounds are found; with ThreadSanitizer, races, also between blocks.
#pragma once
#define CUDA_ON_HOST 1
#include "launch.h"
#include <cmath>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(name) unsigned char* name = cuda_on_host::block.shared

#define threadIdx (cuda_on_host::block.running->index)
#define blockIdx (cuda_on_host::block.index)
#define blockDim (cuda_on_host::block.block_size)
#define gridDim (cuda_on_host::block.grid_size)

#define __syncthreads() cuda_on_host::barrier(__LINE__)
#define __syncwarp(mask) cuda_on_host::warp_barrier(mask, __LINE__)
#define __shfl_xor_sync(mask, value, lane_mask) cuda_on_host::shuffle_xor(mask, value, lane_mask, __LINE__)

using std::max;
using std::min;
using std::isinf;

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
// cos and sin of pi times x, as CUDA offers them: exact at multiples of one half.
inline double cospi(double x) { return std::cos(M_PI * x); }
inline double sinpi(double x) { return std::sin(M_PI * x); }
inline float cospi(float x) { return (float)std::cos(M_PI * (double)x); }
