// Kernels that differ in what they take: registers, shared memory, constants, stack. README.md says what is made of it.
struct Big {
    float values[40];
};

__constant__ float weights[32];

extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void block_sum(const float *x, float *out) {
    __shared__ float part[256];
    part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x] * weights[threadIdx.x % 32];
#pragma unroll 1
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

template <typename T, int N>
__global__ void on_the_stack(const int *where, Big big, T *out) {
    T kept[N];
#pragma unroll 1
    for (int i = 0; i < N; i++) kept[i] = big.values[i % 40] * where[i];
    out[threadIdx.x] = kept[where[threadIdx.x] % N];
}
template __global__ void on_the_stack<double, 64>(const int *, Big, double *);

// shared memory whose size is said at launch: none of it is the kernel's own
extern "C" __global__ void given_shared(const float *x, float *out) {
    extern __shared__ float given[];
    given[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = given[255 - threadIdx.x];
}

// a function that is called, which is no kernel, and whose shared memory is the caller's
__device__ __noinline__ float turned(float x, int i) {
    __shared__ float in_function[64];
    in_function[threadIdx.x % 64] = x;
    __syncthreads();
    return in_function[i % 64];
}
extern "C" __global__ void calls(float *x) { x[threadIdx.x] = turned(x[threadIdx.x], 63 - threadIdx.x); }
