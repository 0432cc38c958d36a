// Launch a kernel on the host: check the sizes as CUDA does, then run block after block.
// Built once per build mode; every kernel is linked with it.
#include "block.h"

namespace cuda_on_host {

constexpr size_t SHARED_LIMIT = 48 * 1024;
constexpr size_t CONCURRENT_LIMIT = 7000;  // ThreadSanitizer keeps at most about 8000 threads

NOT_SANITIZED void check_sizes(const Configuration& sizes, size_t shared) {
    const size_t threads = (size_t)sizes.block[0] * sizes.block[1] * sizes.block[2];
    if (!threads || threads > 1024 || sizes.block[2] > 64)
        fail("a block of %u x %u x %u threads is outside CUDA's limits", sizes.block[0], sizes.block[1], sizes.block[2]);
    if (!sizes.grid[0] || !sizes.grid[1] || !sizes.grid[2] || sizes.grid[0] > 0x7fffffffu || sizes.grid[1] > 65535 ||
        sizes.grid[2] > 65535)
        fail("a grid of %u x %u x %u blocks is outside CUDA's limits", sizes.grid[0], sizes.grid[1], sizes.grid[2]);
    if (shared > SHARED_LIMIT) fail("%zu bytes of shared memory are more than %zu", shared, SHARED_LIMIT);
}

NOT_SANITIZED void resize_threads(size_t count) {
    while (block.threads.size() > count) {
        retire(block.threads.back());
        block.threads.pop_back();
    }
    block.threads.resize(count);
}

NOT_SANITIZED std::vector<size_t> block_order(size_t count) {
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = i;
    if (block.schedule == Reverse) std::reverse(order.begin(), order.end());
    if (block.schedule == Random) std::shuffle(order.begin(), order.end(), block.random);
    return order;
}

NOT_SANITIZED void run_grid(const Configuration& sizes) {
    const size_t across = sizes.grid[0], down = sizes.grid[1], blocks = across * down * sizes.grid[2];
    if (block.blocks_are_concurrent && blocks * block.threads.size() > CONCURRENT_LIMIT)
        fail("concurrent blocks: at most %zu threads a launch", CONCURRENT_LIMIT);
    release(&block.begin_tag);
    for (size_t i : block_order(blocks)) {
        if (block.failed) return;
        place.block = {(unsigned)(i % across), (unsigned)(i / across % down), (unsigned)(i / (across * down))};
        if (block.blocks_are_concurrent)  // shared memory of its own: blocks meet in global memory only
            shared_memory = (unsigned char*)malloc(block.shared_bytes);
        run_block();
        if (!block.blocks_are_concurrent) {
            acquire(&block.end_tag);
            release(&block.begin_tag);
        }
    }
    acquire(&block.end_tag);
}

NOT_SANITIZED int launch(void (*kernel)(void*), void* arguments, const Configuration& sizes, size_t shared,
                                int schedule, unsigned seed, int concurrent) {
    block.failed = false;
    block.error[0] = 0;
    place = {};
    check_sizes(sizes, shared);
    if (block.failed) return 1;
    place.grid_size = {sizes.grid[0], sizes.grid[1], sizes.grid[2]};
    place.block_size = {sizes.block[0], sizes.block[1], sizes.block[2]};
    block.kernel = kernel;
    block.kernel_arguments = arguments;
    block.schedule = (Schedule)schedule;
    block.random.seed(seed);
    block.blocks_are_concurrent = concurrent;
    resize_threads((size_t)sizes.block[0] * sizes.block[1] * sizes.block[2]);
    block.shared_bytes = shared;
    shared_memory = (unsigned char*)malloc(shared);  // exactly, so that AddressSanitizer sees its end
    run_grid(sizes);
    if (concurrent) resize_threads(0);
    forget_retired();
    if (!concurrent) free(shared_memory);  // concurrent blocks keep theirs: a reused address would be a false race
    return block.failed;
}

}  // namespace cuda_on_host

extern "C" const char* last_error() { return cuda_on_host::block.error; }
