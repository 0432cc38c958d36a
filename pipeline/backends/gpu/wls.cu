// Kernels around the weighted least squares: what cuBLAS is given, what it leaves, and the sums of componentwise fits.
//
// Matrices are row by row. REAL is the type of the features (float or double). No kernel adds by atomics: every sum
// has one fixed order, so results repeat bit by bit. Sums over many rows end in double.
//
// A specialisation defines REAL, and where a kernel says so CLASSES (classes that a thread sums at a time) or LANES
// (threads that share a row: a power of 2 up to 32).

#ifndef CUDA_ON_HOST
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif
#ifndef CLASSES
#define CLASSES 1
#endif
#ifndef LANES
#define LANES 1
#endif

// out (n, q) = X[:, columns] - center[columns]. Threads along columns; a thread keeps its column for many rows.
extern "C" __global__ void gather_center(const REAL* __restrict__ X, const int* __restrict__ columns,
                                         const REAL* __restrict__ center, REAL* __restrict__ out, int n, int p, int q)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= q) return;
    const int column = columns[k];
    const REAL middle = center[column];
    for (int i = blockIdx.y; i < n; i += gridDim.y) out[(size_t)i * q + k] = X[(size_t)i * p + column] - middle;
}

// out (batch, n, q): sqrt(w) (X - center) for `batch` classes from `first_class`; W is (n, n_classes). X is read once.
extern "C" __global__ void center_scale(const REAL* __restrict__ X, const REAL* __restrict__ center,
                                        const REAL* __restrict__ W, REAL* __restrict__ out, int n, int q,
                                        int n_classes, int first_class, int batch)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= q) return;
    const REAL middle = center[k];
    for (int i = blockIdx.y; i < n; i += gridDim.y) {
        const REAL value = X[(size_t)i * q + k] - middle;
        const REAL* weights = W + (size_t)i * n_classes + first_class;
        for (int j = 0; j < batch; ++j) out[((size_t)j * n + i) * q + k] = sqrt(weights[j]) * value;
    }
}

// ---- Componentwise fits: sums over rows of x r, x w and x^2 w for every feature and class, x centred ----
//
// A block has 32 x GROUPS threads. Each thread sums FEATURES features and CLASSES classes over its rows, in REAL for a
// run of RUN rows; runs of the GROUPS groups are then added up in shared memory, in double. So a float sum has few terms
// however many rows there are. The grid is (features, parts of the rows, classes).

#define GROUPS 8
#define FEATURES 2
#define WIDTH (32 * FEATURES)  // features of a block
#define RUN 64                 // rows that one thread sums in REAL
#define KINDS 3                // x r, x w, x^2 w

// One row's contribution to a thread's running sums.
__device__ __forceinline__ void add_row(const REAL* __restrict__ x, const REAL* __restrict__ middle,
                                        const bool* inside, const REAL* __restrict__ w, const REAL* __restrict__ r,
                                        int classes, REAL sums[KINDS][CLASSES][FEATURES])
{
    REAL value[FEATURES], square[FEATURES];
#pragma unroll
    for (int f = 0; f < FEATURES; ++f) {
        value[f] = inside[f] ? x[32 * f] - middle[f] : (REAL)0;
        square[f] = value[f] * value[f];
    }
#pragma unroll
    for (int j = 0; j < CLASSES; ++j) {
        const REAL weight = j < classes ? w[j] : (REAL)0, response = j < classes ? r[j] : (REAL)0;
#pragma unroll
        for (int f = 0; f < FEATURES; ++f) {
            sums[0][j][f] += value[f] * response;
            sums[1][j][f] += value[f] * weight;
            sums[2][j][f] += square[f] * weight;
        }
    }
}

// Add the groups' runs, in the order of the groups, to totals[KINDS * CLASSES][WIDTH].
__device__ __forceinline__ void add_groups(const REAL sums[KINDS][CLASSES][FEATURES], double* stage, double* totals)
{
    const int lane = threadIdx.x, group = threadIdx.y, thread = group * 32 + lane;
#pragma unroll
    for (int s = 0; s < KINDS * CLASSES; ++s) {
#pragma unroll
        for (int f = 0; f < FEATURES; ++f)
            stage[group * WIDTH + 32 * f + lane] = (double)sums[s / CLASSES][s % CLASSES][f];
        __syncthreads();
        if (thread < WIDTH) {
            double total = totals[s * WIDTH + thread];
            for (int g = 0; g < GROUPS; ++g) total += stage[g * WIDTH + thread];
            totals[s * WIDTH + thread] = total;
        }
        __syncthreads();
    }
}

// partial (parts, KINDS, n_classes, p); shared: stage[GROUPS][WIDTH], totals[KINDS * CLASSES][WIDTH], double.
// rows_per_block is a multiple of GROUPS * RUN.
extern "C" __global__ void componentwise_partial(const REAL* __restrict__ X, const REAL* __restrict__ center,
                                                 const REAL* __restrict__ W, const REAL* __restrict__ R,
                                                 double* __restrict__ partial, int n, int p, int n_classes,
                                                 int rows_per_block)
{
    DYNAMIC_SHARED(shared);
    double* stage = reinterpret_cast<double*>(shared);
    double* totals = stage + GROUPS * WIDTH;
    const int lane = threadIdx.x, group = threadIdx.y, thread = group * 32 + lane;
    const int feature = blockIdx.x * WIDTH + lane, first_class = blockIdx.z * CLASSES;
    const int classes = min(CLASSES, n_classes - first_class);
    const bool inside[FEATURES] = {feature < p, feature + 32 < p};
    const REAL middle[FEATURES] = {inside[0] ? center[feature] : 0, inside[1] ? center[feature + 32] : 0};
    const int begin = blockIdx.y * rows_per_block, end = min(n, begin + rows_per_block);

    for (int i = thread; i < KINDS * CLASSES * WIDTH; i += 32 * GROUPS) totals[i] = 0;
    __syncthreads();
    for (int chunk = begin; chunk < end; chunk += GROUPS * RUN) {
        REAL sums[KINDS][CLASSES][FEATURES] = {};
        const int stop = min(end, chunk + (group + 1) * RUN);
        for (int i = chunk + group * RUN; i < stop; ++i) {
            const size_t at = (size_t)i * n_classes + first_class;
            add_row(X + (size_t)i * p + feature, middle, inside, W + at, R + at, classes, sums);
        }
        add_groups(sums, stage, totals);
    }
    for (int i = thread; i < KINDS * CLASSES * WIDTH; i += 32 * GROUPS) {
        const int kind = i / (CLASSES * WIDTH), j = i / WIDTH % CLASSES, k = blockIdx.x * WIDTH + i % WIDTH;
        const size_t row = ((size_t)blockIdx.y * KINDS + kind) * n_classes + first_class + j;
        if (j < classes && k < p) partial[row * p + k] = totals[i];
    }
}

// sums (n_sums,) of partial (n_parts, n_sums), part by part.
extern "C" __global__ void componentwise_finish(const double* __restrict__ partial, double* __restrict__ sums,
                                                int n_parts, long long n_sums)
{
    const long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n_sums) return;
    double total = 0;
    for (int part = 0; part < n_parts; ++part) total += partial[part * n_sums + k];
    sums[k] = total;
}

// ---- Random features: the numbers of backends/philox.py, and the cosine of the projections ----

// Philox 4x32-10 (Salmon et al., SC 2011): four words from a 128-bit counter and a 64-bit key.
__device__ __forceinline__ void philox(unsigned int c[4], unsigned int key0, unsigned int key1)
{
    const unsigned int M0 = 0xD2511F53u, M1 = 0xCD9E8D57u;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned int high0 = __umulhi(M0, c[0]), low0 = M0 * c[0], high1 = __umulhi(M1, c[2]), low1 = M1 * c[2];
        c[0] = high1 ^ c[1] ^ key0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ key1;
        c[3] = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

__device__ __forceinline__ double unit(unsigned int word) { return (word + 0.5) * 2.3283064365386963e-10; }  // (0, 1)

// out (count,) = scale * N(0, 1), draw `index` of the key; four numbers per thread, by Box and Muller, in double.
extern "C" __global__ void scaled_normal(REAL* __restrict__ out, long long count, double scale, unsigned int key0,
                                         unsigned int key1, unsigned int index)
{
    const unsigned long long counter = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long first = 4 * (long long)counter;
    if (first >= count) return;
    unsigned int words[4] = {(unsigned int)counter, (unsigned int)(counter >> 32), index, 0u};
    philox(words, key0, key1);
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
        const double radius = sqrt(-2.0 * log(unit(words[pair]))), turn = 2.0 * unit(words[pair + 1]);
        if (first + pair < count) out[first + pair] = (REAL)(scale * (radius * cospi(turn)));
        if (first + pair + 1 < count) out[first + pair + 1] = (REAL)(scale * (radius * sinpi(turn)));
    }
}

// values (n, q) <- cos(values + shift). By whole turns, in double: cos of large arguments would spill to memory.
extern "C" __global__ void cosine(REAL* __restrict__ values, const REAL* __restrict__ shift, long long count, int q)
{
    const long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= count) return;
    const double half_turns = (double)(values[k] + shift[k % q]) * 0.3183098861837907;  // 1 / pi
    values[k] = (REAL)cospi((REAL)(half_turns - 2.0 * rint(0.5 * half_turns)));
}

// ---- Scores: LANES threads share one row of J classes ----

__device__ __forceinline__ unsigned int row_mask()
{
    const unsigned int ones = LANES == 32 ? 0xffffffffu : (1u << (LANES % 32)) - 1;
    return ones << (threadIdx.x % 32 / LANES * LANES);
}

__device__ __forceinline__ REAL row_max(REAL value)
{
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value = max(value, __shfl_xor_sync(row_mask(), value, distance));
    return value;
}

__device__ __forceinline__ REAL row_sum(REAL value)
{
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(row_mask(), value, distance);
    return value;
}

// The largest score of a row and the sum of exp(score - largest); every lane of the row gets both.
__device__ __forceinline__ void softmax_parts(const REAL* __restrict__ scores, int n_classes, REAL& top, REAL& spread)
{
    const int lane = threadIdx.x % LANES;
    REAL largest = scores[0], total = 0;
    for (int j = lane; j < n_classes; j += LANES) largest = max(largest, scores[j]);
    top = row_max(largest);
    for (int j = lane; j < n_classes; j += LANES) total += exp(scores[j] - top);
    spread = row_sum(total);
}

// Add the threads' values in the order of the threads; one number per block. Shared: blockDim.x doubles.
__device__ __forceinline__ void write_block_sum(double value, double* shared, double* __restrict__ sums)
{
    shared[threadIdx.x] = value;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

// Weighted log-loss of one row by log-sum-exp; the row's first lane has it, the others 0.
__device__ __forceinline__ double row_loss(const REAL* scores, int label, REAL weight, REAL top, REAL spread)
{
    if (threadIdx.x % LANES) return 0;
    return (double)weight * ((double)top + log((double)spread) - (double)scores[label]);
}

// W, R (n, n_classes): weights and weighted responses of one round from the scores F; losses (blocks,): log-loss of F.
// The rules are those of boosting/loss.py: floor of p (1 - p), clipped at z_max; keep_gradient: w <- |r| / z_max there.
extern "C" __global__ void working_response(const REAL* __restrict__ F, const int* __restrict__ labels,
                                            const REAL* __restrict__ weight, REAL* __restrict__ W,
                                            REAL* __restrict__ R, double* __restrict__ losses, int n, int n_classes,
                                            REAL z_max, REAL floor, int keep_gradient)
{
    DYNAMIC_SHARED(shared);
    const int rows = blockDim.x / LANES, lane = threadIdx.x % LANES;
    double loss = 0;
    for (int i = blockIdx.x * rows + threadIdx.x / LANES; i < n; i += gridDim.x * rows) {
        const REAL* scores = F + (size_t)i * n_classes;
        REAL top, spread;
        softmax_parts(scores, n_classes, top, spread);
        loss += row_loss(scores, labels[i], weight[i], top, spread);
        for (int j = lane; j < n_classes; j += LANES) {
            const REAL p = exp(scores[j] - top) / spread;
            REAL r = (j == labels[i] ? (REAL)1 : (REAL)0) - p;
            REAL w = max(p * (1 - p), floor);
            const REAL limit = z_max * w;
            if (fabs(r) > limit) {
                if (keep_gradient) w = fabs(r) / z_max;
                else r = copysign(limit, r);
            }
            W[(size_t)i * n_classes + j] = w * weight[i];
            R[(size_t)i * n_classes + j] = r * weight[i];
        }
    }
    write_block_sum(loss, reinterpret_cast<double*>(shared), losses);
}

// losses (blocks,): weighted log-loss of the scores F (n, n_classes).
extern "C" __global__ void log_loss(const REAL* __restrict__ F, const int* __restrict__ labels,
                                    const REAL* __restrict__ weight, double* __restrict__ losses, int n, int n_classes)
{
    DYNAMIC_SHARED(shared);
    const int rows = blockDim.x / LANES;
    double loss = 0;
    for (int i = blockIdx.x * rows + threadIdx.x / LANES; i < n; i += gridDim.x * rows) {
        const REAL* scores = F + (size_t)i * n_classes;
        REAL top, spread;
        softmax_parts(scores, n_classes, top, spread);
        loss += row_loss(scores, labels[i], weight[i], top, spread);
    }
    write_block_sum(loss, reinterpret_cast<double*>(shared), losses);
}

// updated = F + factor (values - mean of the row), and the largest |score| of each row: largest (n,).
extern "C" __global__ void update_scores(const REAL* __restrict__ F, const REAL* __restrict__ values,
                                         REAL* __restrict__ updated, REAL* __restrict__ largest, int n, int n_classes,
                                         REAL factor)
{
    const int rows = blockDim.x / LANES, lane = threadIdx.x % LANES;
    const int i = blockIdx.x * rows + threadIdx.x / LANES;
    if (i >= n) return;  // all lanes of the row leave together
    const size_t row = (size_t)i * n_classes;
    REAL total = 0, top = 0;
    for (int j = lane; j < n_classes; j += LANES) total += values[row + j];
    const REAL mean = row_sum(total) / n_classes;
    for (int j = lane; j < n_classes; j += LANES) {
        const REAL score = F[row + j] + factor * (values[row + j] - mean);
        updated[row + j] = score;
        top = max(top, fabs(score));
    }
    top = row_max(top);
    if (lane == 0) largest[i] = top;
}

// total[0] = the sum of `count` values; one block, each thread its share in order, then as write_block_sum.
extern "C" __global__ void sum_in_order(const double* __restrict__ values, double* __restrict__ total, int count)
{
    DYNAMIC_SHARED(shared);
    double mine = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) mine += values[i];
    write_block_sum(mine, reinterpret_cast<double*>(shared), total);
}
