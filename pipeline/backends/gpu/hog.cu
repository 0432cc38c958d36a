// HoG: from pixels to cell histograms to normalised blocks. The rules are scikit-image's (see the cpu backend).
//
// One thread counts one whole cell, pixel by pixel in row order, into a histogram that no other thread touches. So
// sums have scikit-image's order and rounding, no atomic operation is needed, and every run gives the same bits.
//
// A specialisation defines: PIXEL, the type of the pixels; DIFFERENCE, in which they are subtracted (int: they are
// whole numbers); REAL, of magnitudes, comparisons and norms; OUT, of the features; CHANNELS; ORIENTATIONS;
// CELL_ROWS, CELL_COLS in pixels; BLOCK_ROWS, BLOCK_COLS in cells; NORM; TAKE_ROOT (of each pixel first); WHOLE
// (DIFFERENCE is int); EXACT (hog_rules.exact: one product per edge decides every bin; else REAL is double). Compiled
// without contraction of a * b + c, so that a GPU rounds as the tests on a CPU do.

#ifndef CUDA_ON_HOST
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

#define L1_SQRT 1
#define L2 2
#define L2_HYS 3  // places in config.BLOCK_NORMS; 0 is L1
#define EPSILON ((REAL)1e-5)
#define CLIP ((REAL)0.2)
#define EDGES (ORIENTATIONS - 1)
#define BLOCK_SIZE (BLOCK_ROWS * BLOCK_COLS * ORIENTATIONS)
#define FEW_EDGES 16  // up to here all edges are compared, which needs no waiting; beyond, bisection
#define NEAR 4e-15    // radians from an edge within which scikit-image's rounding may decide: as in the cpu backend

struct Gradient { REAL x, y; };  // along columns, along rows

// What a block is multiplied by before and after clipping, and where its first cell is.
struct BlockScale { REAL scale, again; size_t corner; };

__device__ __forceinline__ DIFFERENCE value_of(PIXEL pixel)
{
    return TAKE_ROOT ? (DIFFERENCE)sqrt((REAL)(DIFFERENCE)pixel) : (DIFFERENCE)pixel;
}

// A pixel's place: its first channel, the distance to the row below, and whether it has both neighbours.
struct Place { const PIXEL* __restrict__ at; ptrdiff_t pitch; bool inner_row, inner_col; };

// Centred differences; 0 across the image's border.
__device__ __forceinline__ Gradient channel_gradient(Place p, int channel)
{
    const PIXEL* __restrict__ at = p.at + channel;
    DIFFERENCE x = 0, y = 0;
    if (p.inner_col) x = value_of(at[CHANNELS]) - value_of(at[-CHANNELS]);
    if (p.inner_row) y = value_of(at[p.pitch]) - value_of(at[-p.pitch]);
    return {(REAL)x, (REAL)y};
}

// What channels are compared by. Squares of whole numbers are exact; else scikit-image's length, in its type: lengths
// within rounding of each other are ordered by hypot's last bit, and the same pair in another order is a tie.
__device__ __forceinline__ REAL channel_length(Gradient g)
{
    return WHOLE ? g.x * g.x + g.y * g.y : (REAL)(DIFFERENCE)hypot(g.x, g.y);
}

// The gradient of the channel where it is longest, the first on ties; NaN counts as longest.
__device__ __forceinline__ Gradient strongest_gradient(Place p)
{
    Gradient best = channel_gradient(p, 0);
    if (CHANNELS == 1) return best;
    REAL longest = channel_length(best);
    for (int channel = 1; channel < CHANNELS; ++channel) {
        const Gradient g = channel_gradient(p, channel);
        const REAL length = channel_length(g);
        const bool first_nan = length != length && longest == longest;
        if (length > longest || first_nan) { best = g; longest = length; }
    }
    return best;
}

// The bin by scikit-image's formula, step by step; -1 where rounding leaves none (an angle of 180). CUDA's atan2, right
// to 2 units in the last place, may differ from NumPy's: then so may the side of the edge.
__device__ __noinline__ int bin_by_angle(REAL x, REAL y)
{
    REAL angle = fmod(atan2(y, x) * (REAL)57.29577951308232, (REAL)180);
    if (angle < 0) angle += (REAL)180;
    const REAL width = (REAL)180 / ORIENTATIONS;
    const int guess = (int)(angle / width);
    for (int bin = guess > 0 ? guess - 1 : 0; bin < ORIENTATIONS && bin <= guess + 1; ++bin)
        if (width * bin <= angle && angle < width * (bin + 1)) return bin;
    return -1;
}

// The number of bin edges that a gradient in the upper half plane (y >= 0) has reached: its bin. One product and a
// comparison decide every pair of 8-bit differences as exact arithmetic does, ties included.
__device__ __forceinline__ int edges_reached(REAL x, REAL y, const REAL* __restrict__ cotangents)
{
    int reached = 0;
    if (EDGES <= FEW_EDGES) {
#pragma unroll
        for (int k = 0; k < EDGES; ++k) reached += x <= cotangents[k] * y ? 1 : 0;
        return reached;
    }
    int step = 1;
    while (2 * step <= EDGES) step *= 2;
    for (; step > 0; step /= 2) {
        const int next = reached + step;
        if (next <= EDGES && x <= cotangents[next - 1] * y) reached = next;
    }
    return reached;
}

// Whether (x, y) is within rounding of the edge whose cotangent is given. Its distance is the sine of the edge's angle
// times x - cotangent * y; `tight` is NEAR times the sum of both components, so up to twice NEAR counts, never less.
__device__ __forceinline__ bool near_edge(REAL x, REAL y, REAL cotangent, REAL tight)
{
    return fabs(x - cotangent * y) < tight * (1 + fabs(cotangent));
}

// Whether rounding may move a gradient in the upper half plane across an edge of its bin. On an axis or a diagonal it
// may not: scikit-image's angle and the products are exact there.
__device__ __forceinline__ bool in_doubt(REAL x, REAL y, int bin, const REAL* __restrict__ cotangents)
{
    const REAL across = fabs(x), tight = (REAL)NEAR * (across + y);
    if (across == 0 || y == 0 || across == y) return false;
    return y < tight  // 0 or 180 degrees
        || (bin > 0 && near_edge(x, y, cotangents[bin - 1], tight))
        || (bin < EDGES && near_edge(x, y, cotangents[bin], tight));
}

__device__ __forceinline__ int bin_of(Gradient g, const REAL* __restrict__ cotangents)
{
    if (!WHOLE && (isinf(g.x) || isinf(g.y)))
        g = {isinf(g.x) ? copysign((REAL)1, g.x) : 0, isinf(g.y) ? copysign((REAL)1, g.y) : 0};
    const bool below = g.y < 0 || (g.y == 0 && g.x < 0);
    const REAL x = below ? -g.x : g.x, y = below ? -g.y : g.y;
    const int bin = edges_reached(x, y, cotangents);
    return !EXACT && in_doubt(x, y, bin, cotangents) ? bin_by_angle(g.x, g.y) : bin;
}

// Add one pixel's magnitude to its bin; a gradient that is not a number spoils every bin of its cell.
__device__ __forceinline__ void vote(Gradient g, const REAL* __restrict__ cotangents, float* histogram, int bin_stride)
{
    const REAL magnitude = WHOLE ? sqrt(g.x * g.x + g.y * g.y) : hypot(g.x, g.y);
    if (!WHOLE && (g.x != g.x || g.y != g.y)) {
        for (int bin = 0; bin < ORIENTATIONS; ++bin) histogram[bin * bin_stride] += (float)magnitude;
        return;
    }
    const int bin = bin_of(g, cotangents);
    if (bin < 0) return;
    float* total = histogram + bin * bin_stride;
    *total = (float)(*total + magnitude);
}

// The mean magnitude per orientation of the cell whose first pixel is (top, left).
__device__ __forceinline__ void count_cell(const PIXEL* __restrict__ image, int height, int width, int top, int left,
                                           const REAL* __restrict__ cotangents, float* histogram, int bin_stride)
{
    for (int bin = 0; bin < ORIENTATIONS; ++bin) histogram[bin * bin_stride] = 0.f;
    const ptrdiff_t pitch = (ptrdiff_t)width * CHANNELS;
#pragma unroll 1
    for (int row = top; row < top + CELL_ROWS; ++row) {
        const bool inner_row = row > 0 && row < height - 1;
        const PIXEL* __restrict__ at = image + row * pitch + left * CHANNELS;
        for (int col = left; col < left + CELL_COLS; ++col, at += CHANNELS) {
            const bool inner_col = col > 0 && col < width - 1;
            vote(strongest_gradient({at, pitch, inner_row, inner_col}), cotangents, histogram, bin_stride);
        }
    }
    for (int bin = 0; bin < ORIENTATIONS; ++bin) histogram[bin * bin_stride] /= (float)(CELL_ROWS * CELL_COLS);
}

// Where feature `element` of a block lies, seen from the block's first cell.
__device__ __forceinline__ size_t element_offset(int element, int cells_across, int cell_stride, int bin_stride)
{
    const int bin = element % ORIENTATIONS, cell = element / ORIENTATIONS;
    const int row = cell / BLOCK_COLS, col = cell % BLOCK_COLS;
    return ((size_t)row * cells_across + col) * cell_stride + (size_t)bin * bin_stride;
}

__device__ __forceinline__ REAL clipped(REAL value) { return value > CLIP ? CLIP : value; }  // NaN stays NaN

// What one value adds to the norm of its block: before clipping, and (SECOND) after.
template <bool SECOND>
__device__ __forceinline__ REAL share_of_norm(REAL value, REAL scale)
{
    if (SECOND) value = clipped(value * scale);
    return NORM >= L2 ? value * value : value;
}

// One thread sums one block, in the order of its features.
template <bool SECOND>
__device__ __forceinline__ REAL block_sum(const float* block, int cells_across, int cell_stride, int bin_stride,
                                          REAL scale)
{
    REAL total = 0;
#pragma unroll 1
    for (int row = 0; row < BLOCK_ROWS; ++row, block += (size_t)cells_across * cell_stride)
#pragma unroll 1
        for (int col = 0; col < BLOCK_COLS; ++col)
            for (int bin = 0; bin < ORIENTATIONS; ++bin)
                total += share_of_norm<SECOND>(block[(size_t)col * cell_stride + bin * bin_stride], scale);
    return total;
}

__device__ BlockScale block_scale(const float* values, size_t corner, int cells_across, int cell_stride, int bin_stride)
{
    const float* block = values + corner * cell_stride;
    const REAL total = block_sum<false>(block, cells_across, cell_stride, bin_stride, 1);
    const REAL scale = 1 / (NORM >= L2 ? sqrt(total + EPSILON * EPSILON) : total + EPSILON);
    if (NORM != L2_HYS) return {scale, 1, corner};
    const REAL again = block_sum<true>(block, cells_across, cell_stride, bin_stride, scale);
    return {scale, 1 / sqrt(again + EPSILON * EPSILON), corner};
}

__device__ __forceinline__ OUT normalised(REAL value, BlockScale by)
{
    value *= by.scale;
    if (NORM == L1_SQRT) value = sqrt(value);
    if (NORM == L2_HYS) value = clipped(value) * by.again;
    return (OUT)value;
}

// Write `count` blocks to consecutive places. Neighbouring threads write neighbouring features; a thread keeps the
// place inside the block, so that it is worked out once.
__device__ __forceinline__ void write_blocks(const float* values, const BlockScale* scales, int count, int cells_across,
                                             int cell_stride, int bin_stride, OUT* __restrict__ features)
{
    const int span = min(BLOCK_SIZE, (int)blockDim.x);
    const int group = threadIdx.x / span, groups = blockDim.x / span;
    if (group >= groups) return;
    for (int element = threadIdx.x % span; element < BLOCK_SIZE; element += span) {
        const size_t offset = element_offset(element, cells_across, cell_stride, bin_stride);
        for (int block = group; block < count; block += groups) {
            const BlockScale by = scales[block];
            features[(size_t)block * BLOCK_SIZE + element] = normalised(values[by.corner * cell_stride + offset], by);
        }
    }
}

// A few whole images per CUDA block: histograms never leave shared memory.
// Shared: one BlockScale per HoG block, then histograms[bin][slot], slot_stride apart; a slot is a cell of an image.
extern "C" __global__ void hog_fused(const PIXEL* __restrict__ pixels, const REAL* __restrict__ cotangents,
                                     OUT* __restrict__ features, int n_images, int height, int width, int cells_down,
                                     int cells_across, int images_per_block, int slot_stride)
{
    DYNAMIC_SHARED(shared);
    const int cells = cells_down * cells_across;
    const int blocks_across = cells_across - BLOCK_COLS + 1;
    const int blocks = (cells_down - BLOCK_ROWS + 1) * blocks_across;
    BlockScale* scales = reinterpret_cast<BlockScale*>(shared);
    float* histograms = reinterpret_cast<float*>(scales + images_per_block * blocks);
    const int first = blockIdx.x * images_per_block;
    const int images = min(images_per_block, n_images - first);

    for (int slot = threadIdx.x; slot < images * cells; slot += blockDim.x) {
        const int cell = slot % cells;
        const PIXEL* image = pixels + (size_t)(first + slot / cells) * height * width * CHANNELS;
        count_cell(image, height, width, cell / cells_across * CELL_ROWS, cell % cells_across * CELL_COLS, cotangents,
                   histograms + slot, slot_stride);
    }
    __syncthreads();
    for (int block = threadIdx.x; block < images * blocks; block += blockDim.x) {
        const int row = block % blocks / blocks_across, col = block % blocks_across;
        const size_t corner = (size_t)(block / blocks) * cells + row * cells_across + col;
        scales[block] = block_scale(histograms, corner, cells_across, 1, slot_stride);
    }
    __syncthreads();
    write_blocks(histograms, scales, images * blocks, cells_across, 1, slot_stride,
                 features + (size_t)first * blocks * BLOCK_SIZE);
}

// Images whose histograms do not fit in shared memory: cells to global memory, histograms[cell][bin].
extern "C" __global__ void hog_cells(const PIXEL* __restrict__ pixels, const REAL* __restrict__ cotangents,
                                     float* __restrict__ histograms, long long n_cells, int height, int width,
                                     int cells_down, int cells_across)
{
    DYNAMIC_SHARED(shared);
    float* counts = reinterpret_cast<float*>(shared);  // [bin][thread]
    const int bin_stride = blockDim.x | 1;             // odd, so that both directions meet different banks
    const long long first = (long long)blockIdx.x * blockDim.x, cells = (long long)cells_down * cells_across;
    const int here = (int)min((long long)blockDim.x, n_cells - first);

    if ((int)threadIdx.x < here) {
        const long long image = (first + threadIdx.x) / cells, cell = (first + threadIdx.x) % cells;
        count_cell(pixels + (size_t)image * height * width * CHANNELS, height, width,
                   (int)(cell / cells_across) * CELL_ROWS, (int)(cell % cells_across) * CELL_COLS, cotangents,
                   counts + threadIdx.x, bin_stride);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < here * ORIENTATIONS; i += blockDim.x)
        histograms[first * ORIENTATIONS + i] = counts[i % ORIENTATIONS * bin_stride + i / ORIENTATIONS];
}

// Then blocks from global memory: one thread takes the norm of one block, all threads write them.
extern "C" __global__ void hog_blocks(const float* __restrict__ histograms, OUT* __restrict__ features,
                                      long long n_blocks, int cells_down, int cells_across)
{
    DYNAMIC_SHARED(shared);
    BlockScale* scales = reinterpret_cast<BlockScale*>(shared);
    const int blocks_across = cells_across - BLOCK_COLS + 1;
    const long long blocks = (long long)(cells_down - BLOCK_ROWS + 1) * blocks_across;
    const long long first = (long long)blockIdx.x * blockDim.x;
    const int here = (int)min((long long)blockDim.x, n_blocks - first);

    if ((int)threadIdx.x < here) {
        const long long block = first + threadIdx.x;
        const long long row = block % blocks / blocks_across, col = block % blocks_across;
        // `blocks` is a multiple of blocks_across, so the column needs no second remainder
        const size_t corner = (size_t)(block / blocks * cells_down + row) * cells_across + col;
        scales[threadIdx.x] = block_scale(histograms, corner, cells_across, ORIENTATIONS, 1);
    }
    __syncthreads();
    write_blocks(histograms, scales, here, cells_across, ORIENTATIONS, 1, features + (size_t)first * BLOCK_SIZE);
}
